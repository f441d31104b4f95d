"""When which thread was at which jobs, in real time: for people who look at it, never for a result."""

from __future__ import annotations

import threading
from time import perf_counter_ns
from typing import NamedTuple


class TimedJobs(NamedTuple):
    """Jobs of a kind that a thread did together; times in ns since the run began."""

    thread: str
    kind: str
    number: int
    began_ns: int
    ended_ns: int


class JobTimes:
    """Notes jobs as they are done, and rounds with the ns at which they end; any thread may."""

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
