"""Snapshots for the live page: the page of a report, and the progress.

The thread of the live page's server takes them; see :mod:`fedsim.page.run_at_hand`.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np

from fedsim.errors import UserError
from fedsim.figures.amounts import bars_text
from fedsim.figures.base import Axis, BarChart, Figure, Part, Section
from fedsim.page.figure_json import figure_json
from fedsim.page.page import Page, PageTable, table_json
from fedsim.page.run_at_hand import LATELY, Counts, RunAtHand
from fedsim.report import number_format
from fedsim.report.run_text import SIMULATED, TIMES
from fedsim.report.text_table import TextTable
from fedsim.runtime.records.dispatch_phases import PHASES, Phase

State: TypeAlias = Literal["waiting", "running", "ended", "failed"]

RATES_OVER = 10
"""Looks over which rates are means."""


@dataclass(frozen=True, slots=True)
class Look:
    """What is shown at an instant.

    Attributes:
        page: All but the following.
        state: Of all that goes on.
        share: How much is done, in ``[0, 1]``; None where nobody knows.
    """

    page: Page
    state: State
    share: float | None = None


class Ended:
    """All has ended well: the report is shown, and made when somebody first looks.

    Args:
        title: What has ended.
        report: Makes the report.
    """

    def __init__(self, title: str, report: Callable[[], Page]) -> None:
        self._title = title
        self._report = report

    @cached_property
    def look(self) -> Look:
        """The report; where its files are gone, a word about that."""
        try:
            page = self._report()
        except UserError as error:
            page = Page(self._title, "run", f"It has ended, but there is nothing to show: {error}")
        return Look(page, "ended", 1.0)


def panels(look: Look) -> dict[str, str]:
    """Return a look as JSON in pieces, so that only those which have changed are sent.

    ``outline`` says which figures and tables there are, and where. Each has a piece of its own.
    """
    page = look.page
    tables = [*([page.table] if page.table else []), *page.tables]
    figures = [figure for section in page.sections for figure in section.figures]
    said = {
        "progress": {"state": look.state, "share": look.share and round(look.share, 4)},
        "words": {
            "title": page.title,
            "answer": page.answer,
            "remarks": list(page.remarks),
            "facts": [list(fact) for fact in page.facts],
        },
        "outline": {
            "kind": page.kind,
            "table": page.table and page.table.name,
            "sections": [
                {"name": one.name, "title": one.title, "figures": [figure.name for figure in one.figures]}
                for one in page.sections
            ],
            "tables": [table.name for table in page.tables],
        },
        **{f"table {table.name}": table_json(table) for table in tables},
        **{f"figure {figure.name}": figure_json(figure) for figure in figures},
    }
    return {name: json.dumps(value, allow_nan=False, separators=(",", ":")) for name, value in said.items()}


class Rates:
    """What a run does in a second of real time, as a mean over the last looks."""

    def __init__(self) -> None:
        self._counts = deque[Counts](maxlen=RATES_OVER)

    def table(self, counts: Counts, passed: str, title: str = "") -> PageTable:
        """Return counts, and their growth since earlier looks.

        Args:
            counts: Of a run, now.
            passed: What its time is called.
            title: Of the table.
        """
        first = self._counts[0] if self._counts else counts
        self._counts.append(counts)
        real_s = counts.real_s - first.real_s

        def row(name: str, now: float, before: float, show: Callable[[float], str]) -> tuple[str, str, str]:
            rate = (
                show(float(f"{max(0.0, now - before) / real_s:.3g}")) if real_s > 0 else number_format.NOTHING
            )
            return name, show(now), rate

        duration, count, size = number_format.duration, number_format.count, number_format.size
        outcomes, asked = counts.outcomes, first.outcomes.get("asked", 0)
        rows = [
            row(f"time {passed}", counts.simulated_s, first.simulated_s, duration),
            row("events", counts.events, first.events, count),
            row("dispatches", outcomes.get("asked", 0), asked, count),
            row("bytes up", counts.sent.sent_up, first.sent.sent_up, size),
            row("bytes down", counts.sent.sent_down, first.sent.sent_down, size),
        ]
        rows += [
            (name, number_format.count(outcomes.get(key, 0)), "")
            for key, name in (
                ("merged", "replies merged"),
                ("dropped", "dropped"),
                ("rejected", "rejected"),
                ("late", "late"),
            )
        ]
        return PageTable("so-far", TextTable(("", "so far", "per second"), rows, title=title))


def fleet_section(run: RunAtHand, passed: str) -> Section:
    """Return how many clients are at what: now, and lately."""
    now, population = run.at_work(), run.parts.data.num_clients
    bars: dict[str, Mapping[Phase, float]] = {"now": now}
    if lately := run.lately_at_work():
        bars["lately, mean"] = lately
    parts = [Part(phase, np.array([float(of.get(phase, 0)) for of in bars.values()])) for phase in PHASES]
    chart = BarChart(list(bars), parts, Axis("clients with a dispatch"))
    idle = max(0, population - sum(now.values()))
    text = f"Of {number_format.several(population, 'client')}, {idle} are idle. {bars_text(chart)}"
    notes = [
        "Waiting clients have a dispatch and nothing to do, such as until all others have replied.",
        f"The mean is over {TIMES[passed]} and the last {LATELY} dispatches.",
    ]
    if passed == SIMULATED:
        notes.append("Most real time is spent where clients wait for a merge, as models are computed then.")
    return Section("now", "Now", [Figure("fleet", "What clients are doing", text, chart, notes)])


def event_tables(run: RunAtHand, passed: str) -> list[PageTable]:
    """Return what has happened lately."""
    kinds = {
        "events": ("Recent events", run.events()),
        "drops": ("Recent replies that were not merged", run.drops()),
    }
    return [
        PageTable(
            name,
            TextTable((f"time {passed}", "event"), rows, title=title, text_columns=frozenset({1})),
        )
        for name, (title, rows) in kinds.items()
        if rows
    ]


def sentence(*parts: str) -> str:
    """Return a sentence of what there is to say; nothing where there is nothing."""
    said = ", ".join(filter(None, parts))
    return f"{said[0].upper()}{said[1:]}." if said else ""
