"""What is seen while a run goes on: a bar on a terminal, now and then a line elsewhere. On standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from fedsim.cli.console import note, terminal
from fedsim.report import text
from fedsim.report.run_text import SIMULATED
from fedsim.runtime.records.result import RoundRow

LINE_EVERY_S = 2.0
"""At most one line in so much real time, ..."""

LINE_EVERY_SHARE = 0.1
"""... unless this share of the rounds has passed since the last one."""

Watch = Callable[[RoundRow], None]


@contextmanager
def watching(label: str, rounds: int, *, quiet: bool = False, passed: str = SIMULATED) -> Iterator[Watch]:
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
        with _bar(label, rounds, passed) as watch:
            yield watch
    else:
        yield Lines(label, rounds, passed=passed)


class Words:
    """Says where a run is: its time, and the last accuracy, or else loss, that was measured.

    Args:
        passed: What its time is called.
    """

    def __init__(self, passed: str = SIMULATED) -> None:
        self._passed = passed
        self._measured = ""

    def __call__(self, row: RoundRow) -> str:
        """Describe a round that has ended."""
        if row.accuracy is not None and row.accuracy.mean is not None:
            self._measured = f", accuracy {text.percent(row.accuracy.mean)} %"
        elif row.accuracy is not None and row.accuracy.mean_loss is not None:
            self._measured = f", loss {text.number(row.accuracy.mean_loss)}"
        return f"{text.duration(row.ended_at_s)} {self._passed}{self._measured}"


class Lines:
    """Prints a line when enough time or enough rounds have passed, and for the first and the last round.

    Args:
        label: What is running.
        rounds: How many rounds there will be.
        clock: Real time, s.
        passed: What the time of a run is called.
    """

    def __init__(
        self,
        label: str,
        rounds: int,
        clock: Callable[[], float] = monotonic,
        *,
        passed: str = SIMULATED,
    ) -> None:
        self._label = label
        self._rounds = rounds
        self._clock = clock
        self._words = Words(passed)
        self._next_at_s = clock()
        self._next_round = 1.0

    def __call__(self, row: RoundRow) -> None:
        """Hear of a round."""
        words = self._words(row)
        if not 1 <= row.round <= self._rounds:
            return
        now_s = self._clock()
        if row.round >= self._next_round or now_s >= self._next_at_s or row.round == self._rounds:
            note(f"{self._label}: round {row.round}/{self._rounds}, {words}")
            self._next_at_s = now_s + LINE_EVERY_S
            self._next_round = row.round + self._rounds * LINE_EVERY_SHARE


@contextmanager
def _bar(label: str, rounds: int, passed: str) -> Iterator[Watch]:
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[words]}", markup=False),
    )
    with Progress(*columns, console=terminal(error=True), transient=True) as progress:
        task = progress.add_task(label, total=rounds, words="")
        words = Words(passed)
        yield lambda row: progress.update(task, completed=min(row.round, rounds), words=words(row))
