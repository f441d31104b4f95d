"""When which thread was at which jobs, in real time: for people who look at it, never for a result."""

from __future__ import annotations

import threading
from time import perf_counter_ns
from typing import NamedTuple


class TimedJobs(NamedTuple):
    """Jobs that a thread did together.

    Attributes:
        thread: Its name.
        kind: Of the jobs, such as ``fit``.
        number: How many there were.
        began_ns: When, in ns since the run began.
        ended_ns: Likewise.
    """

    thread: str
    kind: str
    number: int
    began_ns: int
    ended_ns: int


class JobTimes:
    """Notes jobs as they are done, and rounds as they end; any thread may.

    Attributes:
        jobs: Those that were done, in the order of their ends.
        rounds: Number of each round, and when it ended, in ns since the run began.
    """

    def __init__(self) -> None:
        self.jobs: list[TimedJobs] = []
        self.rounds: list[tuple[int, int]] = []
        self._began_ns = perf_counter_ns()

    def now_ns(self) -> int:
        """Return the real time since the run began, ns."""
        return perf_counter_ns() - self._began_ns

    def done(self, kind: str, number: int, began_ns: int, worker: str = "") -> None:
        """Note that this thread, or another worker of this name, has done jobs which it began then."""
        name = worker or threading.current_thread().name
        self.jobs.append(TimedJobs(name, kind, number, began_ns, self.now_ns()))

    def end_round(self, number: int) -> None:
        """Note that a round ends."""
        self.rounds.append((number, self.now_ns()))
