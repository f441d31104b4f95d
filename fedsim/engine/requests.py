"""What a party asks of its device: jobs, each with its duration."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

from fedsim.engine.cost import Effort
from fedsim.engine.jobs import Job
from fedsim.frozen import made_fast


class TimedJob(NamedTuple):
    """A job, and what it costs.

    Attributes:
        job: The job.
        effort: Its operations.
        duration_s: How long the party's device takes for it.
        load: The factor in it of the device's load.
    """

    job: Job
    effort: Effort
    duration_s: float
    load: float = 1.0


@made_fast
@dataclass(frozen=True, slots=True, eq=False)
class JobRequest:
    """Jobs that a party's device does one after the other; the real work may be done side by side.

    A client hook that awaits a request hands it to the driver of the hook, and gets the list of results.

    Attributes:
        client: Address of the party; ``-1`` is the server.
        dispatch: Number of the dispatch to the client; ``-1`` at the server.
        jobs: The jobs.
        place: Gives the words for whose jobs they are, for an error.
    """

    client: int
    dispatch: int
    jobs: Sequence[TimedJob]
    place: Callable[[], str]

    def ends_ns(self) -> list[int]:
        """Return how long after the first job starts each one ends, ns."""
        return [round(end_s * 1e9) for end_s in accumulate([timed.duration_s for timed in self.jobs])]

    def __await__(self) -> Generator[JobRequest, list[Any], list[Any]]:
        return (yield self)
