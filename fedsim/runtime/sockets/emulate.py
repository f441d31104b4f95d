"""The server's process of an emulation: the run of the simulation, with real work and real bytes.

What :func:`fedsim.runtime.run.run` does in virtual time is done on a real clock: server, bus, presence of
clients, faults, batteries and records are the same. Two things are real. Client processes train, and a job
lasts as long as its device would take (:mod:`fedsim.runtime.sockets.held_clients`). And the bytes of frames
cross sockets, when token buckets let them (:mod:`fedsim.network.token_buckets`).

Evaluation is outside, as in a simulation: the clock stands still. What sockets and the server's own Python
take is real, and no part of the model: it makes the host late, and :class:`Lateness` counts it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf, isfinite
from typing import TYPE_CHECKING, Any, cast

import msgpack

from fedsim.algorithms.contexts import place_of
from fedsim.bus import Delivery, Header, Ledger, Log, MemoryBus
from fedsim.bus.http.messages import Entry, Key, ProtocolError
from fedsim.bus.reply_report import read
from fedsim.clock import Trace, now_ns
from fedsim.clock.paced_loop import PacedLoop
from fedsim.engine.cost import Effort
from fedsim.engine.engine import Engine, RunningRequest
from fedsim.engine.jobs import PastJob
from fedsim.engine.requests import JobRequest, TimedJob
from fedsim.errors import RunError, UserError
from fedsim.fleet import Device
from fedsim.models.flops import Operations
from fedsim.network import Parcel
from fedsim.network.cells import mean_bps
from fedsim.network.token_buckets import PacedCarrier
from fedsim.params import unwarned
from fedsim.plugins import name_of
from fedsim.runtime.clients.contexts import Contexts
from fedsim.runtime.evaluation import Accuracy, Observer
from fedsim.runtime.parts import Parts
from fedsim.runtime.records.recorder import Observe, Recorder, silent, unobserved
from fedsim.runtime.records.result import RoundRow, RunResult
from fedsim.runtime.run import kinds_of, meter_of, open_engine_of, presence_of
from fedsim.runtime.server.actor import ServerActor
from fedsim.runtime.server.server_hooks import LiveHooks
from fedsim.runtime.sockets.held_clients import held_s
from fedsim.runtime.sockets.serve import RemoteStates, gather_clients
from fedsim.runtime.sockets.warm_up import warm_up
from fedsim.runtime.tasks import Tasks
from fedsim.units import format_quantity
from fedsim.wire import SERVER, FrameSize, Kinds, SizedPacked

if TYPE_CHECKING:
    from fedsim.bus.http.server import HttpServer

MAX_SPEED_UP = 1e6
PROBE_BYTES = 4 << 20
"""Bytes that are sent to measure how fast this host sends, ..."""
NUM_PROBES = 3
"""... so many times, of which the slowest counts."""
PROBE_TIMEOUT_S = 60.0
LATE = 0.05
"""A dispatch counts as late whose host has needed more than this share of its time beyond the model."""


@dataclass(eq=False)
class Lateness:
    """How late the host was.

    Attributes:
        speed_up: Emulated seconds in a real one.
        num_dispatches: Dispatches that have ended.
        num_late: Those that took longer than the model by more than :data:`LATE` of their time.
        worst: The largest such share.
        late_s: Emulated seconds by which all dispatches were late, or began late by hooks of the server.
    """

    speed_up: float
    num_dispatches: int = 0
    num_late: int = 0
    worst: float = 0.0
    late_s: float = 0.0
    _late_ns: Counter[Key] = field(default_factory=Counter)
    _began_ns: dict[Key, int] = field(default_factory=dict)
    _of_server_ns: int = 0  # of hooks since the last dispatch: those that come next begin so late
    _is_charged: bool = False

    def add(self, key: Key, late_ns: int) -> None:
        """Note that something of a dispatch was late, in emulated ns."""
        self._late_ns[key] += max(0, late_ns)

    def add_of_server(self, late_ns: int) -> None:
        """Note that a hook of the server took longer than its jobs, in emulated ns."""
        self._of_server_ns = max(0, late_ns) + (0 if self._is_charged else self._of_server_ns)
        self._is_charged = False

    def begin(self, at_ns: int, client: int, dispatch: int, *_: Any) -> None:
        """Note that a dispatch has begun."""
        self._began_ns[client, dispatch] = at_ns
        self._late_ns[client, dispatch] = 0
        self.late_s += self._of_server_ns / 1e9
        self._is_charged = True

    def end(self, at_ns: int, client: int, dispatch: int, *_: Any) -> None:
        """Note that its reply has come, or is waited for no longer."""
        key = client, dispatch
        if (began_ns := self._began_ns.pop(key, None)) is None:
            return  # it was dropped before
        late_ns, lasted_ns = self._late_ns.pop(key), at_ns - began_ns
        share = late_ns / lasted_ns if lasted_ns else 0.0
        self.num_dispatches += 1
        self.num_late += share > LATE
        self.worst, self.late_s = max(self.worst, share), self.late_s + late_ns / 1e9

    def figures(self) -> Mapping[str, float]:
        """Return what the summary says."""
        names = ("speed_up", "num_dispatches", "num_late", "worst", "late_s")
        return {name: getattr(self, name) for name in names}


class RemoteClients:
    """Clients in other processes, whose time is kept here; a :class:`fedsim.network.token_buckets.Mover`.

    Args:
        server: The connections.
        engine: Counts the time of jobs.
        kinds: The kinds of message that may travel.
        lateness: How late the host is.
        log: Where clients' notes go.
    """

    bus: MemoryBus

    def __init__(
        self, server: HttpServer, engine: Engine, kinds: Kinds, lateness: Lateness, log: Log
    ) -> None:
        self._server, self._engine, self._kinds = server, engine, kinds
        self._lateness, self._log = lateness, log
        self._headers: dict[Key, Header] = {}
        self._since_ns: dict[Key, int] = {}  # since when a client can go on with a dispatch
        self._free_ns: dict[int, int] = {}  # when its last reply has left: it serves one dispatch at a time
        self._running: dict[Key, RunningRequest] = {}
        self._data: dict[Key, memoryview] = {}  # of replies on their way
        self._arrived: dict[Key, Callable[[], object]] = {}
        self._handlers: Mapping[str, Callable[..., None]] = {
            "had": self._had,
            "jobs": self._jobs,
            "reply": self._reply,
            "piece": self._piece,
        }

    def hear(self, found: Entry) -> None:
        """Take what a process says; a ProtocolError if it makes no sense."""
        what, client, dispatch, *numbers = found.values
        try:
            self._handlers[what]((client, dispatch), *numbers, found.body)
        except (LookupError, ValueError, TypeError, ArithmeticError, msgpack.UnpackException) as error:
            raise ProtocolError(f"{what!r} of client {client} makes no sense: {error}") from None

    # For the bus, and for those who watch clients

    def take(self, delivery: Delivery) -> None:
        """A dispatch has arrived: let its client begin."""
        header = delivery.header
        key = header.client, header.dispatch
        self._headers[key] = header
        self._since_ns[key] = now_ns()
        body = msgpack.packb((header.round, header.exchange, header.turn, header.merged))
        has_frame = int(delivery.message is not None)
        self._server.tell("begin", *key, now_ns(), has_frame, body=(body,))

    def abandon(self, client: int) -> None:
        """Give up what a client is at."""
        for key in [key for key in self._running if key[0] == client]:
            self._running.pop(key).stop()
        its: dict[Key, Any]
        for its in (self._headers, self._since_ns, self._data, self._arrived):
            for mine in [mine for mine in its if mine[0] == client]:
                del its[mine]
        self._server.tell("stop", client, 0, 0, 0)

    def taken(self, header: Header) -> None:
        """A reply has come to the server: its process can forget it."""
        self._server.tell("done", header.client, header.dispatch, 0, 0)

    def move(self, parcel: Parcel, share: tuple[float, float], arrived: Callable[[Any], object]) -> None:
        """Move a part of a frame."""
        key, is_last = (parcel.client, parcel.dispatch), share[1] == 1
        whole = parcel.payload.num_bytes
        start, end = (round(whole * part) for part in share)
        if parcel.sender == SERVER:
            if is_last:
                self._arrived[key] = partial(arrived, parcel.payload)
            if start < end or is_last:
                body = list(_slices(parcel.payload.parts, start, end))
                self._server.tell("piece", *key, start, whole, body=body)
            return
        if share[0] == 0:
            self._data[key] = memoryview(bytearray(whole))
        if is_last:
            self._arrived[key] = lambda: arrived(self._data.pop(key).toreadonly())
        self._server.tell("pull", *key, start, end)

    # What processes say

    def _had(self, key: Key, *_: Any) -> None:
        if (arrived := self._arrived.pop(key, None)) is not None:  # else it was given up meanwhile
            arrived()

    def _is_asked(self, key: Key) -> bool:
        """Whether a dispatch is still under way; a ValueError if its jobs are running."""
        if key in self._running:
            raise ValueError("its jobs are still running")
        return key in self._headers

    def _jobs(self, key: Key, _: int, __: int, body: memoryview) -> None:
        if not self._is_asked(key):
            return
        client, dispatch = key
        jobs = [
            TimedJob(cast(Any, PastJob(str(name))), Effort((), Operations(float(flops)), 0.0), duration_s)
            for name, flops, duration_s in msgpack.unpackb(body)
        ]
        request = JobRequest(client, dispatch, jobs, partial(place_of, client, self._headers[key].round))
        ended = partial(self._time_is_over, key)
        self._running[key] = running = self._engine.start(request, ended, [None] * len(jobs))
        running.count_from(max(self._since_ns[key], self._free_ns.get(client, 0)))

    def _time_is_over(self, key: Key, results: Any, error: Exception | None) -> None:
        # When it should have been over: what the host is late by now, the next job may make up for.
        self._since_ns[key] = self._running.pop(key).due_ns
        self._server.tell("go", *key, now_ns(), 0)

    def _left(self, key: Key) -> None:
        self._free_ns[key[0]] = now_ns()
        self._server.tell("left", *key, 0, 0)

    def _reply(self, key: Key, _: int, num_bytes: int, body: memoryview) -> None:
        if not self._is_asked(key):
            return
        since_ns = max(self._since_ns.pop(key), self._free_ns.get(key[0], 0))
        self._lateness.add(key, now_ns() - since_ns)
        if num_bytes > self._server.limits.frame.frame_bytes:
            raise ValueError(
                f"a frame of {num_bytes} bytes: the limit is {self._server.limits.frame.frame_bytes}"
            )
        about, notes = msgpack.unpackb(body)
        for level, event, values in [] if notes is None else read(notes):
            say = self._log.warning if level == "warning" else self._log.info
            say(event, client=key[0], **values, told_by="client")
        packed = None
        if about is not None:
            kind, num_parameters, is_data, plain_bytes = about
            size = FrameSize(kind, num_bytes, num_parameters, is_data, plain_bytes)
            plan = self._kinds.get(kind)
            if plan is None:
                raise ValueError(f"{kind!r} is no kind of message of this run")
            packed = SizedPacked(size, plan)
        departure = self.bus.clients.send(self._headers.pop(key).reply(), packed)
        departure.then(partial(self._left, key))

    def _piece(self, key: Key, start: int, whole: int, body: memoryview) -> None:
        if key not in self._data:
            return
        if whole != len(self._data[key]):
            raise ValueError(f"a part of {whole} bytes, of which there are {len(self._data[key])}")
        end = start + len(body)
        self._data[key][start:end] = body
        if end == whole and (arrived := self._arrived.pop(key, None)) is not None:
            arrived()


def _slices(parts: Sequence[bytes | memoryview], start: int, end: int) -> Iterator[memoryview]:
    """Yield views of the bytes from one place to another, of parts that follow each other."""
    for part in parts:
        view = memoryview(part).cast("B")
        if start < len(view) and end > 0:
            yield view[max(0, start) : end]
        start, end = start - len(view), end - len(view)


class _ServerEngine(Engine):
    """Does the server's jobs, each of which lasts as long as its device would take; counts clients' times."""

    device: Device
    _num_running = _busy_ns = _since_ns = 0

    @property
    def busy_ns(self) -> int:
        """For how long the server's device has been at work, ns."""
        return self._busy_ns + (now_ns() - self._since_ns if self._num_running else 0)

    async def run(self, request: JobRequest, results: Sequence[Any] | None = None) -> list[Any]:
        """Do the jobs of a request; return their results when they and their time are over."""
        time = asyncio.get_running_loop().create_future()
        jobs = [
            timed._replace(duration_s=held_s(self.device, timed.effort, timed.load)) for timed in request.jobs
        ]
        self._busy_ns, self._since_ns = self.busy_ns, now_ns()
        self._num_running += 1
        running = self.start(replace(request, jobs=jobs), partial(_end, time), [None] * len(jobs))
        work = asyncio.ensure_future(self.observe_all(request))
        try:
            try:
                await time
            finally:
                self._busy_ns, self._since_ns = self.busy_ns - max(0, now_ns() - running.due_ns), now_ns()
                self._num_running -= 1
                running.stop()
            return await work
        finally:
            work.cancel()


def _end(time: asyncio.Future[None], *_: Any) -> None:
    if not time.done():
        time.set_result(None)


@dataclass(frozen=True, eq=False)
class _TimedHooks(LiveHooks):
    """Calls hooks, and notes how much longer they take than their jobs."""

    engine: _ServerEngine = field(kw_only=True)
    lateness: Lateness = field(kw_only=True)

    async def instruct(self, *arguments: Any) -> Any:
        """Call an *instruct* hook."""
        return await self._timed(super().instruct(*arguments))

    async def merge(self, *arguments: Any) -> Any:
        """Call a *merge* hook."""
        return await self._timed(super().merge(*arguments))

    async def _timed(self, hook: Awaitable[Any]) -> Any:
        idle_ns = now_ns() - self.engine.busy_ns
        try:
            return await hook
        finally:
            self.lateness.add_of_server(now_ns() - self.engine.busy_ns - idle_ns)


class _Unnoticed(Observer):
    """An observer that takes no emulated time."""

    async def measure(self, *arguments: Any) -> Accuracy | None:
        with cast(PacedLoop, asyncio.get_running_loop()).stopped_clock():
            return await super().measure(*arguments)

    async def accuracies(self, *arguments: Any) -> dict[int, float]:
        with cast(PacedLoop, asyncio.get_running_loop()).stopped_clock():
            return await super().accuracies(*arguments)


def rounded(number: float) -> str:
    """Return a number to one digit."""
    return f"{float(f'{number:.1g}'):g}"


def check_emulation(parts: Parts, speed_up: float) -> None:
    """Check that a run can be emulated; a UserError says why not."""
    if parts.edges is not None:
        raise UserError("[[edge]]: an emulation has no edges: remove them, or simulate")
    if name_of(parts.network) == "none":
        raise UserError("network.model: 'none' has no links that could be emulated: write 'fluid' or 'naive'")
    if not 0 < speed_up <= MAX_SPEED_UP:
        raise UserError(f"a speed-up of {speed_up:g}: write a number above 0, at most {MAX_SPEED_UP:,.0f}")


async def _check_rate(parts: Parts, server: HttpServer, clients: Sequence[int], speed_up: float) -> None:
    """Check that this host can send as fast as the fastest link; a UserError says how fast it can."""
    links, rates = parts.links(), map(mean_bps, parts.network.server_rates(parts.links()))
    fastest_bps = min(max(rates), max(max(links.ingress_bps(one), links.egress_bps(one)) for one in clients))
    able_bps = inf
    for _ in range(NUM_PROBES):
        began_s = asyncio.get_running_loop().time()
        await server.probe(clients[0], bytes(PROBE_BYTES), PROBE_TIMEOUT_S)
        able_bps = min(able_bps, 8 * PROBE_BYTES / (asyncio.get_running_loop().time() - began_s))
    if isfinite(fastest_bps) and speed_up * fastest_bps > able_bps:
        needed, able = (format_quantity(rate, "bit rate") for rate in (speed_up * fastest_bps, able_bps))
        raise UserError(
            f"a speed-up of {speed_up:g}: the fastest link would carry {needed}, and this host sends {able} "
            f"to a client process: give a speed-up of {rounded(able_bps / fastest_bps)} or less"
        )


async def emulate(
    parts: Parts,
    server: HttpServer,
    *,
    ledger: Ledger,
    trace: Trace,
    log: Log | None = None,
    watch: Callable[[RoundRow], None] = lambda row: None,
    observe: Observe = unobserved,
    wait_s: float | None = None,
) -> RunResult:
    """Wait for clients, run, and return what the run has shown, on a :class:`PacedLoop`.

    Args:
        parts: What the run is made of.
        server: The server's endpoint.
        ledger: Where frames are entered.
        trace: Where events are recorded.
        log: Where drops, rejections and rounds are noted.
        watch: Told of each round as it ends.
        observe: Given what will record the run.
        wait_s: Time for all clients to join; None for any.

    Raises:
        RunError: The run failed, or a process has left.
        UserError: The parts do not fit each other, or this host cannot send as fast as it would have to.
    """
    log, loop = log or silent(), cast(PacedLoop, asyncio.get_running_loop())
    await asyncio.to_thread(warm_up, parts)
    engine = open_engine_of(_ServerEngine, parts, trace)
    engine.device = parts.fleet.server
    try:
        initial, tasks, kinds = parts.initial(), Tasks(), kinds_of(parts)
        loop.set_exception_handler(
            lambda _, told: tasks.fail(told.get("exception") or RunError(told["message"]))
        )
        recorder = Recorder(
            parts.data.num_clients, ledger, trace, log, watch, keep_spans=parts.energy is not None
        )
        observe(recorder, parts)
        lateness = Lateness(loop.speed_up)
        clients = RemoteClients(server, engine, kinds, lateness, log)
        plain = PacedCarrier(
            parts.links(),
            parts.network.server_rates(parts.links()),
            clients,
            lambda parcel, late_ns: lateness.add((parcel.client, parcel.dispatch), late_ns),
            loop.speed_up,
        )
        carrier = parts.with_faults(plain, trace)
        clients.bus = bus = MemoryBus(
            carrier, kinds, ledger, trace, parts.overhead, verify=parts.verify, retry=parts.retry
        )
        contexts = Contexts(parts, engine, initial, log.warning, log.info)
        states = RemoteStates(parts, server, contexts, initial, trace, log)
        observer = _Unnoticed(parts, engine, contexts, states, trace)
        meter = meter_of(parts, {}, trace, recorder)
        actor = ServerActor(
            *(parts, engine, bus.server, initial, observer, recorder, trace, log),
            meter=meter,
            make_hooks=partial(_TimedHooks, engine=engine, lateness=lateness),
        )
        bus.presence = presence = presence_of(parts, bus, engine, clients.abandon, trace, {}, meter)
        trace.listen({"dispatch": lateness.begin, "drop": lateness.end})

        def take(delivery: Delivery) -> None:
            clients.taken(delivery.header)
            lateness.end(now_ns(), delivery.header.client, delivery.header.dispatch)
            actor.take(delivery)

        server.heard = clients.hear
        bus.clients.feed(clients.take)
        bus.server.feed(take)
        everybody = parts.eligible().tolist()
        await gather_clients(parts, server, wait_s, log, are_all_needed=True)
        states.look()
        await _check_rate(parts, server, everybody, loop.speed_up)

        async def lose() -> None:
            client = await server.wait_for_loss(everybody)
            raise RunError(f"the process of client {client} is gone, and an emulation needs all of them")

        tasks.start(lose(), "loss of a process")
        loop.start_clock()
        with unwarned():
            await tasks.until(actor.run())
            with loop.stopped_clock():
                if presence is not None:
                    presence.close()
                result = recorder.close(verify=parts.verify, is_going_on=not bus.is_idle)
                final = result(await observer.final_models(actor.state, actor.merged, recorder.num_rounds))
        has_batteries = meter is not None and parts.fleet.has_batteries
        return replace(
            final,
            num_saturated=sum(actor.saturations),
            spent_j=meter.spent_j() if meter is not None and meter.is_metering_all else None,
            battery_levels=meter.levels() if meter is not None and has_batteries else None,
            emulation=lateness.figures(),
        )
    finally:
        engine.close()
