"""What a timeline shows of a run, from its trace: frames, the server's work, merges, ends of dispatches."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

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


@dataclass(slots=True, eq=False)
class RunEvents:
    """What a trace tells, in the order of time."""

    frames: list[SentFrame] = field(default_factory=list)
    jobs: list[ServerJob] = field(default_factory=list)
    merges: list[Merge] = field(default_factory=list)
    remarks: dict[tuple[int, int], list[tuple[int, str]]] = field(default_factory=lambda: defaultdict(list))
    accuracies: dict[str, list[tuple[int, float]]] = field(default_factory=lambda: defaultdict(list))
    stopped: tuple[int, str] | None = None
    _under_way: defaultdict[tuple[int, int, bool], deque[SentFrame]] = field(
        default_factory=lambda: defaultdict(deque), init=False
    )
    _at_work: defaultdict[tuple[int, str], deque[ServerJob]] = field(
        default_factory=lambda: defaultdict(deque), init=False
    )

    def listeners(self) -> Mapping[str, Listener]:
        """Return what fills this when it hears the records of a trace."""
        return {
            "transfer_start": self._sent,
            "transfer_end": self._ended,
            "job_start": self._job_began,
            "job_end": self._job_ended,
            "merge": self._merged,
            "drop": self._dropped,
            "reject": self._rejected,
            "late": self._came_late,
            "abandon": self._abandoned,
            "evaluation": self._evaluated,
            "stop": self._stopped,
        }

    def _sent(
        self,
        at_ns: int,
        client: int,
        dispatch: int,
        up: bool,
        kind: str,
        num_bytes: int,
        parameters: int,
        data: bool,
        overhead: int,
    ) -> None:
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
        self,
        at_ns: int,
        round: int,  # noqa: A002
        exchange: str,
        version: int,
        clients: Sequence[int],
        dispatches: Sequence[int],
    ) -> None:
        self.merges.append(Merge(at_ns, round, exchange, version, len(clients)))

    def _dropped(self, at_ns: int, client: int, dispatch: int, cause: str) -> None:
        self.remarks[client, dispatch].append((at_ns, f"dropped: {cause}"))

    def _rejected(self, at_ns: int, client: int, dispatch: int, reason: str) -> None:
        self.remarks[client, dispatch].append((at_ns, f"rejected: {reason}"))

    def _came_late(self, at_ns: int, client: int, dispatch: int) -> None:
        self.remarks[client, dispatch].append((at_ns, "came late"))

    def _abandoned(self, at_ns: int, client: int, dispatch: int, cause: str) -> None:
        self.remarks[client, dispatch].append((at_ns, f"gives up: {cause}"))

    def _evaluated(
        self,
        at_ns: int,
        round: int,  # noqa: A002
        clients: int,
        mean: float | None,
        global_: float | None,
    ) -> None:
        for what, value in (("mean over clients", mean), ("global model", global_)):
            if value is not None:
                self.accuracies[what].append((at_ns, value))

    def _stopped(self, at_ns: int, budget: str) -> None:
        self.stopped = at_ns, budget
