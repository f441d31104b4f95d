"""Progress of a run on standard error: a bar on a terminal, a few lines elsewhere; and its live page."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING

import click
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from fedsim.cli.console import note, terminal
from fedsim.report import number_format
from fedsim.report.run_text import SIMULATED, measured_words
from fedsim.runtime.records.result import RoundRow

if TYPE_CHECKING:
    from fedsim.page.live_page import LivePage

Rounds = int | None
"""Number of rounds; None if unknown."""

LINE_EVERY_S = 10.0
"""Minimum real time between two lines, s."""

LINE_EVERY_SHARE = 0.1
"""Minimum time between two lines as a share of the real time since the first one."""

WIDE = 100
"""Columns of a terminal that a bar with real and simulated time needs."""

Watch = Callable[[RoundRow], None]


@contextmanager
def watching(
    label: str,
    rounds: Rounds,
    *,
    quiet: bool = False,
    passed: str = SIMULATED,
    time_left: TimeLeft | None = None,
) -> Iterator[Watch]:
    """Yield a function that is called with each round as it ends."""
    words = Words(rounds, passed, time_left or TimeLeft())
    if quiet:
        yield lambda row: None
    elif sys.stderr.isatty():
        with _bar_of_rounds(label, words) as watch:
            yield watch
    else:
        lines = Lines(label, words)
        yield lines
        lines.end()


@dataclass(slots=True)
class TimeLeft:
    """Estimates how much real time is left, from the time since it was first asked.

    Waiting for clients and loading data come before that, and happen once.
    """

    runs: int = 1
    ended: int = 0
    _first: tuple[float, float] | None = field(default=None, init=False)

    def __call__(self, share: float, now_s: float) -> str:
        """Return it in words, given the share of a run that is done; empty if unknown."""
        done = (self.ended + share) / self.runs
        before, began_s = self._first = self._first or (done, now_s)
        return number_format.time_left(now_s - began_s, (done - before) / (1 - before)) if before < 1 else ""


@dataclass(slots=True)
class Words:
    """Describes where a run is: its time, the last accuracy or loss measured, and the time left."""

    rounds: Rounds
    passed: str = SIMULATED
    time_left: TimeLeft = field(default_factory=TimeLeft)
    is_short: bool = False
    _measured: str = field(default="", init=False)

    def __call__(self, row: RoundRow, now_s: float) -> str:
        """Describe a round that has ended."""
        self._measured = measured_words(row.accuracy) or self._measured
        passed = f"{number_format.duration(row.ended_at_s)} {self.passed}"
        left = self.time_left(min(1.0, row.round / self.rounds), now_s) if self.rounds else ""
        parts = (left or passed, self._measured) if self.is_short else (passed, self._measured, left)
        return ", ".join(filter(None, parts))


@dataclass(slots=True)
class Lines:
    """Prints a line for the first and the last round, and when enough time has passed."""

    label: str
    words: Words
    clock: Callable[[], float] = monotonic
    _began_s: float | None = field(default=None, init=False)
    _next_at_s: float = field(default=-math.inf, init=False)
    _unsaid: str = field(default="", init=False)

    def __call__(self, row: RoundRow) -> None:
        """Take a round that has ended."""
        now_s, rounds = self.clock(), self.words.rounds
        words = self.words(row, now_s)
        if not 1 <= row.round <= (rounds or math.inf):
            return
        of = f"/{rounds}" if rounds else ""
        self._unsaid = f"{self.label}: round {row.round}{of}, {words}"
        if self._began_s is None:
            self._began_s = now_s
        if now_s >= self._next_at_s:
            self.end()
            self._next_at_s = now_s + max(LINE_EVERY_S, (now_s - self._began_s) * LINE_EVERY_SHARE)

    def end(self) -> None:
        """Print the line of the last round, unless it was printed."""
        if self._unsaid:
            note(self._unsaid)
        self._unsaid = ""


@contextmanager
def bar(label: str, total: float | None, *columns: ProgressColumn) -> Iterator[tuple[Progress, TaskID]]:
    """Show a bar with columns behind it, the last of which are the task's ``words``."""
    described = TextColumn("{task.description}", markup=False), BarColumn(bar_width=20)
    words = TextColumn("{task.fields[words]}", markup=False)
    with Progress(*described, *columns, words, console=terminal(error=True), transient=True) as progress:
        yield progress, progress.add_task(label, total=total, words="")


@contextmanager
def _bar_of_rounds(label: str, words: Words) -> Iterator[Watch]:
    rounds = words.rounds
    words.is_short = terminal(error=True).width < WIDE
    elapsed = [] if words.is_short else [TimeElapsedColumn()]
    with bar(label, rounds, MofNCompleteColumn(), *elapsed) as (progress, task):
        yield lambda row: progress.update(
            task, completed=min(row.round, rounds or row.round), words=words(row, monotonic())
        )


def live_page(port: int | None) -> LivePage | None:
    """Open the page that is asked for, and print its address; the command closes it at its end."""
    if port is None:
        return None
    from fedsim.page.live_page import LivePage

    page = click.get_current_context().with_resource(LivePage(port))
    note(f"live page: {page.url}")
    return page
