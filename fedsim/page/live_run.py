"""A run while it goes on, as a page shows it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic, process_time

from fedsim.figures.base import Section, Target
from fedsim.figures.run_figures import round_sections
from fedsim.page.live_looks import Ended, Look, Rates, event_tables, fleet_section, sentence
from fedsim.page.live_server import Clock
from fedsim.page.page import Page
from fedsim.page.run_at_hand import RunAtHand
from fedsim.report import number_format
from fedsim.report.run_text import PASSED, SIMULATED
from fedsim.runtime.parts import Parts
from fedsim.runtime.records.recorder import Recorder

_BEFORE = {SIMULATED: "It is about to begin.", PASSED: "Waiting for clients to join."}
"""What is said of a run before its first event, by what its time is called."""


class LiveRun:
    """A run that is to begin. Its thread calls all but :meth:`look`.

    Args:
        title: Which run it is.
        passed: What its time is called.
        targets: Accuracies that are marked.

    Attributes:
        clock: What passes while it goes on.
    """

    def __init__(self, title: str, *, passed: str = SIMULATED, targets: Sequence[Target] = ()) -> None:
        self.clock: Clock = process_time if passed == SIMULATED else monotonic
        self._title = title
        self._passed = passed
        self._targets = targets
        self._at_hand: RunAtHand | None = None
        self._end: Ended | None = None
        self._failed: str | None = None
        self._rates = Rates()
        self._sections: tuple[int, list[Section]] = 0, []

    def observe(self, recorder: Recorder, parts: Parts) -> None:
        """The run begins."""
        self._at_hand = RunAtHand(recorder, parts)

    def ended(self, report: Callable[[], Page]) -> None:
        """It has ended well; the page of its report is made if somebody looks."""
        self._end = Ended(self._title, report)

    def failed(self, said: str) -> None:
        """It has not."""
        if self._end is None:
            self._failed = said

    def look(self) -> Look:
        """Return what is to be seen now."""
        if self._end is not None:
            return self._end.look
        run = self._at_hand
        if run is None:
            answer = self._failed or _BEFORE[self._passed]
            return Look(Page(self._title, "run", answer), "failed" if self._failed else "waiting")
        counts, rounds = run.counts(), run.parts.rounds
        share = run.share(counts)
        number, sections = self._sections
        if number != len(run.rows):
            made = round_sections(run.columns(), self._targets, is_simulated=self._passed == SIMULATED)
            number, sections = self._sections = len(run.rows), made
        words = sentence(
            f"{run.round} of {number_format.several(rounds, 'round')}"
            if rounds
            else number_format.several(run.round, "round"),
            f"{number_format.duration(counts.simulated_s)} {self._passed}",
            run.measured(),
        )
        left = sentence(number_format.time_left(counts.real_s, share))
        if share == 1:
            left = "What is left is being computed and written."
        page = Page(
            self._title,
            "run",
            f"{words} {self._failed or left}".rstrip(),
            table=self._rates.table(counts, self._passed),
            sections=[fleet_section(run, self._passed), *sections],
            tables=event_tables(run, self._passed),
        )
        return Look(page, "failed" if self._failed else "running", share)
