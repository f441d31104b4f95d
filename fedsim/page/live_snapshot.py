"""Snapshots for the live page: the report page plus progress; taken in the thread of the page's server."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from fedsim.errors import UserError
from fedsim.figures.chart_descriptions import bars_text
from fedsim.figures.chart_types import Axis, BarChart, Figure, Part, Section
from fedsim.page.live_reader import Counts, RunReader
from fedsim.page.live_server import Clock
from fedsim.page.page_content import Page, PageTable, page_json
from fedsim.report import number_format
from fedsim.report.run_text import SIMULATED, TIMES
from fedsim.report.text_table import TextTable
from fedsim.runtime.records.dispatch_phases import PHASES, Phase

State: TypeAlias = Literal["waiting", "running", "ended", "failed"]

RATES_OVER = 10
"""Snapshots over which rates are means."""

LAST_DISPATCHES = 1000
"""Dispatches over which the mean number of clients in each phase is taken."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The live page at an instant; ``share`` is the finished part, None where it is unknown."""

    page: Page
    state: State
    share: float | None = None


class Followed(ABC):
    """A run, comparison or study that the live page shows. Its own thread calls all but :meth:`snapshot`."""

    def __init__(self, title: str, clock: Clock) -> None:
        self.clock = clock
        self._title = title
        self._failure = ""
        self._report: Callable[[], Page] | None = None
        self._last: Snapshot | None = None

    def ended(self, report: Callable[[], Page]) -> None:
        """Note that all has ended well; the report page is made if a browser asks for it."""
        self._report = report

    def failed(self, reason: str) -> None:
        """Note a failure; one after the end changes nothing."""
        self._failure = reason

    def snapshot(self) -> Snapshot:
        """Return what the page shows now."""
        if self._report is None:
            return self._progress()
        if self._last is None:
            try:
                page = self._report()
            except UserError as error:
                page = Page(self._title, "run", f"It has ended, but there is nothing to show: {error}")
            self._last = Snapshot(page, "ended", 1.0)
        return self._last

    @abstractmethod
    def _progress(self) -> Snapshot:
        """Return what the page shows before the end."""


def panels(snapshot: Snapshot) -> dict[str, str]:
    """Return a snapshot as JSON texts: progress, words, the outline, and one for each table and figure."""
    page = page_json(snapshot.page)
    tables = [*([page["table"]] if page["table"] else []), *page["tables"]]
    sections = [
        {**section, "figures": [figure["name"] for figure in section["figures"]]}
        for section in page["sections"]
    ]
    values = {
        "progress": {"state": snapshot.state, "share": snapshot.share and round(snapshot.share, 4)},
        "words": {name: page[name] for name in ("title", "answer", "remarks", "facts")},
        "outline": {
            "kind": page["kind"],
            "table": page["table"] and page["table"]["name"],
            "sections": sections,
            "tables": [table["name"] for table in page["tables"]],
        },
        **{f"table {table['name']}": table for table in tables},
        **{
            f"figure {figure['name']}": figure
            for section in page["sections"]
            for figure in section["figures"]
        },
    }
    return {name: json.dumps(value, allow_nan=False, separators=(",", ":")) for name, value in values.items()}


class Rates:
    """Rates of a run per second of real time, as means over the last snapshots."""

    def __init__(self) -> None:
        self._counts = deque[Counts](maxlen=RATES_OVER)

    def table(self, counts: Counts, passed: str, title: str = "") -> PageTable:
        """Return counts and their rates; ``passed`` is the word for the run's time."""
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
        for name in ("merged", "dropped", "rejected", "late"):
            label = "replies merged" if name == "merged" else name
            rows.append((label, count(outcomes.get(name, 0)), ""))
        return PageTable("so-far", TextTable(("", "so far", "per second"), rows, title=title))


def fleet_section(run: RunReader, passed: str) -> Section:
    """Return a figure of how many clients are in which phase: now, and as a mean."""
    dispatches, population = run.recorder.dispatches, run.parts.data.num_clients
    now = dispatches.at_work()
    bars: dict[str, Mapping[Phase, float]] = {"now": now}
    if lately := dispatches.lately_at_work(LAST_DISPATCHES):
        bars["lately, mean"] = lately
    parts = [Part(phase, np.array([float(of.get(phase, 0)) for of in bars.values()])) for phase in PHASES]
    chart = BarChart(list(bars), parts, Axis("clients with a dispatch"))
    idle = max(0, population - sum(now.values()))
    text = f"Of {number_format.several(population, 'client')}, {idle} are idle. {bars_text(chart)}"
    notes = [
        "Waiting clients have a dispatch and nothing to do, such as until all others have replied.",
        f"The mean is over {TIMES[passed]} and the last {LAST_DISPATCHES} dispatches.",
    ]
    if passed == SIMULATED:
        notes.append("Most real time is spent where clients wait for a merge, as models are computed then.")
    return Section("now", "Now", [Figure("fleet", "What clients are doing", text, chart, notes)])


def event_tables(run: RunReader, passed: str) -> list[PageTable]:
    """Return tables of the last events."""
    kinds = {
        "events": ("Recent events", run.events),
        "drops": ("Recent replies that were not merged", run.drops),
    }
    headings, words = (f"time {passed}", "event"), frozenset({1})
    return [
        PageTable(name, TextTable(headings, rows, text_columns=words, title=title))
        for name, (title, last) in kinds.items()
        if (rows := last.rows())
    ]


def sentence(*parts: str) -> str:
    """Return a sentence of the parts that are not empty; empty without any."""
    text = ", ".join(filter(None, parts))
    return f"{text[0].upper()}{text[1:]}." if text else ""
