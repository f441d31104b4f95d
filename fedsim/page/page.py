"""What a page says, apart from how a browser shows it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fedsim.figures.base import Section
from fedsim.page.figure_json import look, section_json
from fedsim.page.sort_keys import sort_keys
from fedsim.report.text_table import TextTable


@dataclass(frozen=True, slots=True)
class PageTable:
    """A table with its place on a page.

    Attributes:
        name: Of its place: lower-case words and hyphens.
        table: Its cells.
    """

    name: str
    table: TextTable


@dataclass(frozen=True, slots=True)
class Page:
    """A page, from its top to its bottom.

    Attributes:
        title: What it is about.
        kind: What that is.
        answer: What has come out, in a sentence or two.
        table: The figures behind the answer; None where there are none yet.
        remarks: What a reader has to know to read the figures, a sentence each.
        sections: Figures.
        tables: More tables.
        facts: What was done, with which version, and the hashes by which it is known.
    """

    title: str
    kind: Literal["run", "comparison", "study"]
    answer: str
    table: PageTable | None = None
    remarks: Sequence[str] = ()
    sections: Sequence[Section] = ()
    tables: Sequence[PageTable] = ()
    facts: Sequence[tuple[str, str]] = ()


def named(tables: Iterable[TextTable]) -> list[PageTable]:
    """Return tables with places of their own on a page."""
    return [PageTable(f"table-{number}", table) for number, table in enumerate(tables, start=1)]


def page_json(page: Page) -> dict[str, Any]:
    """Return a page as what JSON can say. The scripts of the page describe it in ``scripts/page.js``."""
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
    """Return a table, with the keys by which each of its columns is sorted (None: by its words)."""
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
    """Let a chart whose lines, or groups, are all in an earlier one show them as that one does."""
    seen: list[dict[str, int]] = []
    for chart in charts:
        things = chart.get("lines") or chart.get("groups") or []
        labels = [thing["label"] for thing in things]
        numbers = next((one for one in seen if one.keys() >= set(labels)), None)
        if numbers is None:
            seen.append({label: number for number, label in enumerate(labels)})
        else:
            for thing in things:
                thing |= look(numbers[thing["label"]], thing["label"])
