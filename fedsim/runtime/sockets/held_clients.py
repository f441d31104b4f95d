"""The client process of an emulation: clients work for real, and go on when the server says so.

The server keeps the time of devices and links (:mod:`fedsim.runtime.sockets.emulate`). This process gets
frames piece by piece and begins with a dispatch when it is told to. It asks the server to count the modelled
time of jobs, while it does them, and sends the pieces of replies for which the server asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgpack

from fedsim.bus import Delivery, Header
from fedsim.bus.http.messages import Entry, Key, decode_frame, framed
from fedsim.bus.reply_report import Report, written
from fedsim.clock import start_clock
from fedsim.engine.cost import Effort
from fedsim.engine.engine import Engine, name_of_job
from fedsim.engine.requests import JobRequest
from fedsim.fleet import Device
from fedsim.wire import SERVER, Kinds, Message, Packed

if TYPE_CHECKING:
    from fedsim.bus.http.client import HttpClient
    from fedsim.runtime.clients.host import ClientHost


MAX_FRAMES = 8
"""Dispatches of a client whose frames are kept: they may be under way, or be sent again."""


def held_s(device: Device, effort: Effort, load: float) -> float:
    """Return how long a device takes for a job, s.

    This is the definition (:mod:`fedsim.engine.cost`), step by step and without its code, so that an error
    there shows where an emulation is compared with a simulation.
    """
    seconds = device.overhead_s
    for times, step in effort.steps:
        computing_s = step.flops / (device.efficiency * device.speed_flops)
        moving_s = step.moved_bytes / device.memory_bandwidth_bytes_per_s
        seconds += times * load * max(computing_s, moving_s)
    return seconds


class HeldEngine(Engine):
    """Does the jobs of clients, which end no sooner than the server says."""

    clients: HeldClients
    device_of: Callable[[int], Device]

    async def run(self, request: JobRequest, results: Sequence[Any] | None = None) -> list[Any]:
        """Do the jobs of a request; return their results when they and their time are over."""
        device = self.device_of(request.client)
        jobs = [
            (
                name_of_job(timed.job),
                timed.effort.total.flops,
                held_s(device, timed.effort, timed.load),
            )
            for timed in request.jobs
        ]
        work = asyncio.ensure_future(self.observe_all(request))
        try:
            await self.clients.ask_time(request.client, request.dispatch, jobs)
            return await work
        finally:
            work.cancel()


class HeldClients:
    """The endpoint of the clients of one process; a :class:`fedsim.bus.Endpoint`.

    Args:
        client: The connection.
        kinds: The kinds of message that may travel.
        hosted: Who works.
        report: Returns what goes with a reply.
    """

    def __init__(
        self,
        client: HttpClient,
        kinds: Kinds,
        hosted: ClientHost,
        report: Callable[[Header], Report],
    ) -> None:
        self._client, self._kinds, self._report = client, kinds, report
        self._hosted = hosted
        self._frames: dict[Key, memoryview] = {}
        self._replies: dict[Key, tuple[memoryview, asyncio.Future[None]]] = {}
        self._times: dict[Key, asyncio.Future[None]] = {}
        self._handlers: Mapping[str, Callable[..., None]] = {
            "piece": self._piece,
            "begin": self._begin,
            "go": self._go,
            "pull": self._pull,
            "left": self._left,
            "done": self._done,
            "stop": self._stop,
        }

    def hear(self, found: Entry) -> None:
        """Do what the server says."""
        what, client, dispatch, *numbers = found.values
        self._handlers[what]((client, dispatch), *numbers, found.body)

    async def ask_time(self, client: int, dispatch: int, jobs: Sequence[tuple[str, float, float]]) -> None:
        """Let the server count the time of jobs, each with name, operations and duration, s; wait for it."""
        key = client, dispatch
        self._times[key] = time = asyncio.get_running_loop().create_future()
        self._client.tell("jobs", *key, 0, 0, body=(msgpack.packb(jobs),))
        await time

    def send(self, header: Header, message: Message | Packed | None) -> asyncio.Future[None]:
        """Say that there is a reply; what is returned is done when its last byte has left."""
        key = header.client, header.dispatch
        packed, frame = framed(header, message, self._client.limits.frame)
        report, about = self._report(header), None
        if packed is not None:
            about = packed.kind, packed.num_parameters, packed.is_data, packed.plain_bytes(header.exchange)
        data = memoryview(b"" if frame is None else frame.join())
        left: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        _forget_before(self._replies, key)
        self._replies[key] = data, left
        body = msgpack.packb((about, written(report.notes, report.left_out)))
        self._client.tell("reply", *key, 0, len(data), body=(body,))
        return left

    # What the server says

    def _piece(self, key: Key, start: int, whole: int, body: memoryview) -> None:
        if start == 0:
            _forget_before(self._frames, key)
            self._frames[key] = memoryview(bytearray(whole))
        end = start + len(body)
        self._frames[key][start:end] = body
        if end == whole:
            self._client.tell("had", *key, 0, 0)

    def _begin(self, key: Key, now_ns: int, has_frame: int, body: memoryview) -> None:
        start_clock(now_ns)
        client, dispatch = key
        round_, exchange, turn, merged = msgpack.unpackb(body)
        header = Header(SERVER, client, round_, exchange, dispatch, turn, merged)
        message = None
        if has_frame:
            frame = self._frames.pop(key).toreadonly()
            message = decode_frame(header, frame, self._kinds, self._client.limits.frame)
        self._hosted.take(Delivery(header, message))

    def _go(self, key: Key, now_ns: int, _: int, body: None) -> None:
        start_clock(now_ns)
        if (time := self._times.pop(key, None)) is not None and not time.done():
            time.set_result(None)

    def _pull(self, key: Key, start: int, end: int, body: None) -> None:
        if key in self._replies:
            data = self._replies[key][0]
            self._client.tell("piece", *key, start, len(data), body=(data[start:end],))

    def _left(self, key: Key, *_: Any) -> None:
        # Its bytes stay: a fault may lose them, and then they are sent again.
        if key in self._replies and not (left := self._replies[key][1]).done():
            left.set_result(None)

    def _done(self, key: Key, *_: Any) -> None:
        self._replies.pop(key, None)

    def _stop(self, key: Key, *_: Any) -> None:
        client = key[0]
        self._hosted.abandon(client)
        every: tuple[dict[Key, Any], ...] = self._frames, self._replies, self._times
        for its in every:
            for mine in [mine for mine in its if mine[0] == client]:
                del its[mine]


def _forget_before(frames: dict[Key, Any], key: Key) -> None:
    """Forget frames of a client's dispatches long before one."""
    client, dispatch = key
    for old in [old for old in frames if old[0] == client and old[1] < dispatch - MAX_FRAMES]:
        del frames[old]
