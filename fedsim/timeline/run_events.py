"""What a timeline shows of a run, from its trace: frames, the server's work, merges, ends of dispatches."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from fedsim.clock.event_trace import Listener
from fedsim.wire import SERVER


@dataclass(slots=True, eq=False)
class SentFrame:
    """A frame."""

    client: int
    dispatch: int
    up: bool
    kind: str
    num_bytes: int
    sent_ns: int
    ended_ns: int | None = None
    outcome: str = "in_flight"
    cause: str = ""


@dataclass(slots=True, eq=False)
class ServerJob:
    """Work of the server's own device; ``ended_ns`` is None where it was not done when the run ended."""

    name: str
    flops: float
    began_ns: int
    ended_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Merge:
    """A merge, and the server's version after it."""

    at_ns: int
    round: int
    exchange: str
    version: int
    num_replies: int


class RunEvents:
    """What a trace tells, in the order of time."""

    def __init__(self) -> None:
        self.frames: list[SentFrame] = []
        self.jobs: list[ServerJob] = []
        self.merges: list[Merge] = []
        self.remarks = defaultdict[tuple[int, int], list[tuple[int, str]]](list)
        self.accuracies = defaultdict[str, list[tuple[int, float]]](list)
        self.stopped: tuple[int, str] | None = None
        self._under_way = defaultdict[tuple[int, int, bool], deque[SentFrame]](deque)
        self._at_work = defaultdict[tuple[int, str], deque[ServerJob]](deque)

    def listeners(self) -> Mapping[str, Listener]:
        """Return what fills this when it hears the records of a trace."""
        return {
            "transfer_start": self._sent,
            "transfer_end": self._ended,
            "job_start": self._job_began,
            "job_end": self._job_ended,
            "merge": self._merged,
            "drop": partial(self._remark, "dropped: {}"),
            "reject": partial(self._remark, "rejected: {}"),
            "late": partial(self._remark, "came late"),
            "abandon": partial(self._remark, "gives up: {}"),
            "evaluation": self._evaluated,
            "stop": self._stopped,
        }

    def _sent(self, at_ns: int, client: int, dispatch: int, up: bool, kind: str, *sizes: int) -> None:
        num_bytes, _parameters, _data, overhead = sizes
        frame = SentFrame(client, dispatch, up, kind, num_bytes + overhead, at_ns)
        self.frames.append(frame)
        self._under_way[client, dispatch, up].append(frame)

    def _ended(self, at_ns: int, client: int, dispatch: int, up: bool, outcome: str, cause: str) -> None:
        waiting = self._under_way[client, dispatch, up]
        frame = waiting.popleft()
        frame.ended_ns, frame.outcome, frame.cause = at_ns, outcome, cause
        if not waiting:
            del self._under_way[client, dispatch, up]

    def _job_began(
        self, at_ns: int, client: int, dispatch: int, name: str, flops: float, duration_s: float
    ) -> None:
        if client == SERVER:
            job = ServerJob(name, flops, at_ns)
            self.jobs.append(job)
            self._at_work[dispatch, name].append(job)

    def _job_ended(self, at_ns: int, client: int, dispatch: int, name: str, outcome: str) -> None:
        if client == SERVER:
            self._at_work[dispatch, name].popleft().ended_ns = at_ns

    def _merged(
        self, at_ns: int, number: int, exchange: str, version: int, clients: Sequence[int], *_: object
    ) -> None:
        self.merges.append(Merge(at_ns, number, exchange, version, len(clients)))

    def _remark(self, words: str, at_ns: int, client: int, dispatch: int, *cause: str) -> None:
        self.remarks[client, dispatch].append((at_ns, words.format(*cause)))

    def _evaluated(
        self, at_ns: int, number: int, clients: int, mean: float | None, global_: float | None
    ) -> None:
        for what, value in (("mean over clients", mean), ("global model", global_)):
            if value is not None:
                self.accuracies[what].append((at_ns, value))

    def _stopped(self, at_ns: int, budget: str) -> None:
        self.stopped = at_ns, budget
