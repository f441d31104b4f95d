"""When which thread was at which jobs, in real time: for people who look at it, never for a result."""

from __future__ import annotations

import threading
from collections.abc import Iterable
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
    """Notes jobs as they are done, and rounds with the ns at which they end; any thread may.

    Args:
        jobs: Jobs of a run that goes on.
        rounds: Its rounds.
        before_s: The real time that it had taken, s.
    """

    def __init__(
        self, jobs: Iterable[TimedJobs] = (), rounds: Iterable[tuple[int, int]] = (), before_s: float = 0.0
    ) -> None:
        self.jobs, self.rounds = list(jobs), list(rounds)
        self._began_ns = perf_counter_ns() - int(before_s * 1e9)

    def now_ns(self) -> int:
        """Return the real time since the run began, ns."""
        return perf_counter_ns() - self._began_ns

    def done(self, kind: str, number: int, began_ns: int, worker: str = "") -> None:
        """Note that this thread, or another worker of this name, has done jobs which it began then."""
        name = worker or threading.current_thread().name
        self.jobs.append(TimedJobs(name, kind, number, began_ns, self.now_ns()))

    def end_round(self, number: int) -> None:
        """Note that a round ends, if it has not ended before: a run that goes on repeats its rounds."""
        if not self.rounds or number > self.rounds[-1][0]:
            self.rounds.append((number, self.now_ns()))
