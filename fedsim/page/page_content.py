"""The content of a page, apart from how a browser shows it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fedsim.figures.chart_types import Section
from fedsim.page.figure_json import look, section_json
from fedsim.report.number_format import COUNT_PREFIXES, NOTHING
from fedsim.report.text_table import TextTable
from fedsim.studies.comparison import BEST
from fedsim.units import shown_units

_UNITS = {
    "": 1.0,
    "%": 1.0,
    **shown_units("time"),
    **shown_units("data size"),
    **shown_units("energy"),
    **COUNT_PREFIXES,
}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?(?:e[+-]?\d+)?)(?:\s*([^\d\s+-]+))?")
_FRACTION = re.compile(r"1/(\d+(?:\.\d+)?)")
_OF = re.compile(r"(\d+) of \d+")


@dataclass(frozen=True, slots=True)
class PageTable:
    """A table, and the name of its place: lower-case words and hyphens."""

    name: str
    table: TextTable


@dataclass(frozen=True, slots=True)
class Page:
    """A page, from its top to its bottom; ``table`` has the numbers behind the answer, if there are any."""

    title: str
    kind: Literal["run", "comparison", "study", "validation"]
    answer: str
    table: PageTable | None = None
    remarks: Sequence[str] = ()
    sections: Sequence[Section] = ()
    tables: Sequence[PageTable] = ()
    facts: Sequence[tuple[str, str]] = ()


def named(tables: Iterable[TextTable]) -> list[PageTable]:
    """Return tables with names of their own."""
    return [PageTable(f"table-{number}", table) for number, table in enumerate(tables, start=1)]


def page_json(page: Page) -> dict[str, Any]:
    """Return a page as JSON values; ``scripts/page.js`` describes them."""
    sections = [section_json(section) for section in page.sections]
    _share_looks([figure["chart"] for section in sections for figure in section["figures"]])
    return {
        "title": page.title,
        "kind": page.kind,
        "answer": page.answer,
        "table": None if page.table is None else table_json(page.table),
        "remarks": list(page.remarks),
        "sections": sections,
        "tables": [table_json(table) for table in page.tables],
        "facts": [list(fact) for fact in page.facts],
    }


def table_json(named: PageTable) -> dict[str, Any]:
    """Return a table with the sort keys of each column (None: by its words)."""
    table = named.table
    columns = [[row[column] for row in table.rows] for column in range(len(table.headings))]
    return {
        "name": named.name,
        "title": table.title,
        "headings": [heading.replace("\n", " ") for heading in table.headings],
        "words": sorted(table.text_columns),
        "rows": [list(row) for row in table.rows],
        "keys": [sort_keys(cells) for cells in columns],
        "notes": list(table.notes),
    }


def _share_looks(charts: Iterable[dict[str, Any]]) -> None:
    """Give the lines or groups of a chart the looks that an earlier chart gives to all of them."""
    seen: list[dict[str, int]] = []
    for chart in charts:
        things = chart.get("lines") or chart.get("groups") or []
        labels = [thing["label"] for thing in things]
        numbers = next((earlier for earlier in seen if earlier.keys() >= set(labels)), None)
        if numbers is None:
            seen.append({label: number for number, label in enumerate(labels)})
        else:
            for thing in things:
                thing |= look(numbers[thing["label"]], thing["label"])


def sort_keys(cells: Sequence[str]) -> list[float | None] | None:
    """Return the numbers of a column's cells, or None if cells are words; ``"1 min 3 s ± 2 s*"`` is 63."""
    keys = [None if cell == NOTHING or not cell else _number(cell) for cell in cells]
    has_words = any(key is None and cell not in (NOTHING, "") for key, cell in zip(keys, cells, strict=True))
    return None if has_words or all(key is None for key in keys) else keys


def _number(cell: str) -> float | None:
    shown = cell.removesuffix(BEST).partition(" ±")[0].partition(" (")[0].strip()
    if fraction := _FRACTION.fullmatch(shown):
        return 1 / float(fraction[1])
    if share := _OF.fullmatch(shown):
        return float(share[1])
    sign = -1.0 if shown.startswith("-") else 1.0
    shown, total, at = shown.lstrip("+-"), 0.0, 0
    while part := _PART.match(shown, at):
        unit = part[2] or ""
        if unit not in _UNITS:
            return None
        total += sign * float(part[1]) * _UNITS[unit]
        at = part.end()
    return total if shown and at == len(shown) else None
