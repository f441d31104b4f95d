"""What is seen while a run goes on: a bar on a terminal, a few lines elsewhere. On standard error."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from fedsim.cli.console import note, terminal
from fedsim.report import number_format
from fedsim.report.run_text import SIMULATED
from fedsim.runtime.records.result import RoundRow

Rounds = int | None
"""How many rounds there will be; None where nobody knows."""

LINE_EVERY_S = 10.0
"""At most one line in so much real time, ..."""

LINE_EVERY_SHARE = 0.1
"""... and in this share of the real time since the first one."""

WIDE = 100
"""Columns of a terminal from which on a bar says how much real time has passed."""

Watch = Callable[[RoundRow], None]


@contextmanager
def watching(label: str, rounds: Rounds, *, quiet: bool = False, passed: str = SIMULATED) -> Iterator[Watch]:
    """Yield a function that is told of each round as it ends.

    Args:
        label: What is running.
        rounds: How many rounds there will be.
        quiet: Show nothing.
        passed: What the time of a run is called.
    """
    if quiet:
        yield lambda row: None
    elif sys.stderr.isatty():
        with _bar(label, rounds, Words(passed)) as watch:
            yield watch
    else:
        lines = Lines(label, rounds, Words(passed))
        yield lines
        lines.end()


@dataclass(slots=True)
class Words:
    """Says where a run is: its time, and the last accuracy, or else loss, that was measured.

    Attributes:
        passed: What its time is called.
    """

    passed: str = SIMULATED
    _measured: str = ""

    def __call__(self, row: RoundRow) -> str:
        """Describe a round that has ended."""
        if row.accuracy is not None and row.accuracy.mean is not None:
            self._measured = f", accuracy {number_format.percent(row.accuracy.mean)} %"
        elif row.accuracy is not None and row.accuracy.mean_loss is not None:
            self._measured = f", loss {number_format.number(row.accuracy.mean_loss)}"
        return f"{number_format.duration(row.ended_at_s)} {self.passed}{self._measured}"


@dataclass(slots=True)
class Lines:
    """Prints a line for the first and the last round, and when enough time has passed.

    Attributes:
        label: What is running.
        rounds: How many rounds there will be.
        words: Describes a round.
        clock: Real time, s.
    """

    label: str
    rounds: Rounds
    words: Words = field(default_factory=Words)
    clock: Callable[[], float] = monotonic
    _began_s: float | None = field(default=None, init=False)
    _next_at_s: float = field(default=-math.inf, init=False)
    _unsaid: str = field(default="", init=False)

    def __call__(self, row: RoundRow) -> None:
        """Hear of a round."""
        words = self.words(row)
        if not 1 <= row.round <= (self.rounds or math.inf):
            return
        of = f"/{self.rounds}" if self.rounds else ""
        self._unsaid = f"{self.label}: round {row.round}{of}, {words}"
        now_s = self.clock()
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
def _bar(label: str, rounds: Rounds, words: Words) -> Iterator[Watch]:
    console = terminal(error=True)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        *([TimeElapsedColumn()] if console.width >= WIDE else []),
        TextColumn("{task.fields[words]}", markup=False),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(label, total=rounds, words="")
        yield lambda row: progress.update(
            task, completed=min(row.round, rounds or row.round), words=words(row)
        )
