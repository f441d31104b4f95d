"""What clients did in a run's past, and how long their frames were: from the records of its trace."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

from fedsim.algorithms.contexts import place_of
from fedsim.bus import Header
from fedsim.clock import RecordKind
from fedsim.engine.cost import Effort
from fedsim.engine.jobs import PastJob
from fedsim.engine.requests import JobRequest, TimedJob
from fedsim.errors import InvariantError
from fedsim.models.flops import Operations
from fedsim.runtime.clients.hook_steps import Turn
from fedsim.wire import FrameSize, SizedPacked
from fedsim.wire.coded_messages import EncodedMessage

Jobs = Sequence[Sequence[Any]]
"""Of each job its name, operations and duration in s."""

SERVER_JOBS = -1
"""The client in records of jobs of the server."""


@dataclass(slots=True, eq=False)
class PastDispatch:
    """One dispatch to a client.

    Attributes:
        requests: The jobs for which its hook asked, request by request.
        down: The frame to the client; None where none was sent.
        up: The frame of the reply, likewise.
    """

    requests: list[list[Sequence[Any]]] = field(default_factory=list)
    down: FrameSize | None = None
    up: FrameSize | None = None


class PastWork:
    """Every dispatch of a past, by client and number.

    Args:
        records: Those of the trace, as :func:`fedsim.clock.event_trace.stored_records` gives them.
    """

    def __init__(self, records: Iterable[tuple[RecordKind, Sequence[Any]]]) -> None:
        self._dispatches: dict[tuple[int, int], PastDispatch] = {}
        self._asking: tuple[int, int] | None = None  # whose hook asks for jobs, until another record comes
        readers: dict[str, Callable[..., None]] = {
            "job_start": self._job_started,
            "transfer_start": self._sent,
            "coded": self._coded,
        }
        for kind, record in records:
            if (read := readers.get(kind.name)) is not None:
                read(*record[2:])
            if kind.name != "job_start":
                self._asking = None

    def of(self, client: int, dispatch: int) -> PastDispatch:
        """Return a dispatch; an empty one where the trace knows of none."""
        return self._dispatches.get((client, dispatch), PastDispatch())

    def _job_started(self, client: int, dispatch: int, name: str, flops: float, duration_s: float) -> None:
        if client == SERVER_JOBS:
            return
        key = client, dispatch
        requests = self._at(key).requests
        if self._asking != key:
            requests.append([])
        self._asking = key
        requests[-1].append((name, flops, duration_s))

    def _sent(
        self,
        client: int,
        dispatch: int,
        up: bool,
        kind: str,
        num_bytes: int,
        parameters: int,
        is_data: bool,
        overhead: int,
    ) -> None:
        size, of = FrameSize(kind, num_bytes, parameters, is_data), self._at((client, dispatch))
        if up:
            of.up = size
        else:
            of.down = size

    def _coded(self, client: int, dispatch: int, up: bool, plain_bytes: int) -> None:
        of = self._at((client, dispatch))
        if up and of.up is not None:
            of.up = of.up._replace(plain_bytes=plain_bytes)
        elif not up and of.down is not None:
            of.down = of.down._replace(plain_bytes=plain_bytes)

    def _at(self, key: tuple[int, int]) -> PastDispatch:
        return self._dispatches.setdefault(key, PastDispatch())


@lru_cache(maxsize=4096)
def _past_job(name: str, flops: float) -> tuple[Any, Any]:
    return PastJob(name), Effort((), Operations(flops), 0.0)


def past_request(client: int, dispatch: int, round: int, jobs: Jobs) -> JobRequest:  # noqa: A002
    """Return the request for jobs that have been done, of which the times are left."""
    timed = [TimedJob(*_past_job(name, flops), duration_s) for name, flops, duration_s in jobs]
    return JobRequest(client, dispatch, timed, partial(place_of, client, round))


class PastTurn(Turn):
    """The work of a client for a dispatch of the past: only time passes.

    Args:
        header: Of the dispatch.
        requests: The jobs for which the hook asked.
        reply: What is sent.
    """

    __slots__ = ("_num_begun", "_requests")

    is_past = True

    def __init__(self, header: Header, requests: Sequence[Jobs], reply: SizedPacked | None) -> None:
        super().__init__(header, None, None, _never, None)
        self.result = None, None if reply is None else reply.message
        self.done = [[None] * len(jobs) for jobs in requests]
        if reply is not None:
            self.encoded = EncodedMessage(reply.message, {})
        self._requests, self._num_begun = requests, 0

    def go_on(
        self, results: list[Any] | None = None, error: BaseException | None = None
    ) -> JobRequest | None:
        """Return the next request; its results are there."""
        number = self._num_begun
        self._num_begun = number + 1
        self.results = self.done[number] if number < len(self.done) else None
        return self._request(number)

    def go_on_ahead(self) -> JobRequest | None:
        """Do the same beforehand."""
        request = self._request(len(self.asked))
        self.asked.append(request)
        return request

    def forget_ahead(self) -> None:
        """Forget nothing: there are no steps to repeat."""

    def _request(self, number: int) -> JobRequest | None:
        if number == len(self._requests):
            return None
        header = self.header
        return past_request(header.receiver, header.dispatch, header.round, self._requests[number])


def _never(turn: Turn) -> Coroutine[Any, Any, Any]:
    raise InvariantError("the hook of a dispatch of the past was called")
