"""A running simulation on the live page."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic, process_time

from fedsim.figures.chart_types import Section, Target
from fedsim.figures.run_figures import round_sections
from fedsim.page.live_reader import RunReader
from fedsim.page.live_snapshot import Followed, Rates, Snapshot, event_tables, fleet_section, sentence
from fedsim.page.page_content import Page
from fedsim.report import number_format
from fedsim.report.run_text import PASSED, SIMULATED, measured_words
from fedsim.report.tables import rounds_so_far
from fedsim.runtime.parts import Parts
from fedsim.runtime.records.recorder import Recorder
from fedsim.runtime.records.result import last_measured

_BEFORE = {SIMULATED: "It is about to begin.", PASSED: "Waiting for clients to join."}
"""The answer before the first event, by the word for the run's time."""


class LiveRun(Followed):
    """A run that is to begin; ``passed`` is the word for its time."""

    def __init__(self, title: str, *, passed: str = SIMULATED, targets: Sequence[Target] = ()) -> None:
        super().__init__(title, process_time if passed == SIMULATED else monotonic)
        self._passed = passed
        self._targets = targets
        self._run: RunReader | None = None
        self._rates = Rates()
        self._sections: tuple[int, list[Section]] = 0, []

    def observe(self, recorder: Recorder, parts: Parts) -> None:
        """Read the run from now on, as it begins."""
        self._run = RunReader(recorder, parts)

    def _progress(self) -> Snapshot:
        run, failure = self._run, self._failure
        if run is None:
            answer = failure or _BEFORE[self._passed]
            return Snapshot(Page(self._title, "run", answer), "failed" if failure else "waiting")
        counts, rounds, rows = run.counts(), run.parts.rounds, run.rows
        share = run.share(counts)
        if self._sections[0] != len(rows):
            is_simulated = self._passed == SIMULATED
            sections = round_sections(rounds_so_far(rows), self._targets, is_simulated=is_simulated)
            self._sections = len(rows), sections
        words = sentence(
            f"{run.round} of {number_format.several(rounds, 'round')}"
            if rounds
            else number_format.several(run.round, "round"),
            f"{number_format.duration(counts.simulated_s)} {self._passed}",
            measured_words(last_measured(rows)),
        )
        left = sentence(number_format.time_left(counts.real_s, share))
        if share == 1:
            left = "What is left is being computed and written."
        page = Page(
            self._title,
            "run",
            f"{words} {failure or left}".rstrip(),
            table=self._rates.table(counts, self._passed),
            sections=[fleet_section(run, self._passed), *self._sections[1]],
            tables=event_tables(run, self._passed),
        )
        return Snapshot(page, "failed" if failure else "running", share)
