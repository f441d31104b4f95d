"""One run, from ready-made parts to a result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from fedsim import clock
from fedsim.bus import Ledger, MemoryBus, Totals
from fedsim.clock import Trace
from fedsim.engine.engine import Engine
from fedsim.engine.worker import Resources
from fedsim.errors import UserError
from fedsim.network import Links
from fedsim.params import Array
from fedsim.runtime.conductor import Conductor
from fedsim.runtime.dispatches import Dispatches
from fedsim.runtime.host import ClientHost
from fedsim.runtime.invariants import check_counts, check_dispatches, check_phases, check_trace
from fedsim.runtime.log import Log, silent
from fedsim.runtime.observer import Accuracy, Observer
from fedsim.runtime.parts import Parts
from fedsim.runtime.presence import Presence
from fedsim.runtime.recorder import Recorder, RoundRow
from fedsim.runtime.tasks import Tasks
from fedsim.wire import COMMON, Kinds


@dataclass(frozen=True, slots=True, eq=False)
class RunResult:
    """What a run has shown; nothing in it depends on the host.

    Attributes:
        simulated_s: Virtual time at the end, s.
        rounds: One row per round; and where the algorithm has any, one for the opening before the first and
            one for the closing after the last.
        by_client: Tallies of dispatches, ``[K]`` each: asked, merged, dropped, rejected, late.
        ledger: Every frame.
        dispatches: Every asking, and where its time went.
        drops: Dispatches without an answer in time, by cause.
        rejections: Replies that could not be merged, by reason.
        trace_hash: Fingerprint of the event trace.
        model_hash: Digest of the evaluated models of all measured clients, in client order.
    """

    simulated_s: float
    rounds: Sequence[RoundRow]
    by_client: Mapping[str, Array]
    ledger: Ledger
    dispatches: Dispatches
    drops: Counter[str]
    rejections: Counter[str]
    trace_hash: str
    model_hash: str

    @property
    def totals(self) -> Totals:
        """Frames, bytes and parameters over the whole run."""
        return self.ledger.totals()

    @property
    def final(self) -> Accuracy | None:
        """The last accuracy and loss measured."""
        return next((row.accuracy for row in reversed(self.rounds) if row.accuracy is not None), None)

    @property
    def best(self) -> float | None:
        """The highest mean over clients of any evaluation."""
        means = [row.accuracy.mean for row in self.rounds if row.accuracy and row.accuracy.mean is not None]
        return max(means, default=None)

    @property
    def best_global(self) -> float | None:
        """The highest accuracy on the global test set of any evaluation."""
        values = [row.accuracy.global_ for row in self.rounds if row.accuracy is not None]
        return max((value for value in values if value is not None), default=None)

    @property
    def best_loss(self) -> float | None:
        """The lowest mean over clients of the loss of any evaluation, of those that are finite."""
        means = [row.accuracy.mean_loss for row in self.rounds if row.accuracy]
        return min((mean for mean in means if mean is not None and isfinite(mean)), default=None)


def run(
    parts: Parts,
    *,
    trace: Trace | None = None,
    log: Log | None = None,
    watch: Callable[[RoundRow], None] = lambda row: None,
) -> RunResult:
    """Run in virtual time, in this process.

    Args:
        parts: What the run is made of.
        trace: Where events are recorded; under ``parts.verify`` it must keep its records.
        log: Where drops, rejections and rounds are noted.
        watch: Told of each round as it ends.

    Raises:
        RunError: The run failed.
        UserError: The parts do not fit each other.
        ValueError: A trace that is not kept, under ``verify``.
    """
    trace = Trace(keep=parts.verify) if trace is None else trace
    if parts.verify and not trace.keep:
        raise ValueError("under verify the trace is checked, so it has to be kept: give Trace(keep=True)")
    if problem := parts.misfit():
        raise UserError(problem)
    resources = Resources.of(parts.data, parts.architectures, parts.device)
    engine = Engine(parts.executor, resources, trace)
    try:
        return clock.run(_simulate(parts, engine, trace, log or silent(), watch))
    finally:
        engine.close()


async def _simulate(
    parts: Parts, engine: Engine, trace: Trace, log: Log, watch: Callable[[RoundRow], None]
) -> RunResult:
    ledger, dispatches = Ledger(), Dispatches(trace)
    network, links = parts.network, _links(parts)
    carrier = network.checked_carrier(links) if parts.verify else network.carrier(links)
    kinds = Kinds((*COMMON, *parts.algorithm.messages))
    bus = MemoryBus(carrier, kinds, ledger, trace, overhead=parts.overhead, verify=parts.verify)
    initial, tasks = parts.initial(), Tasks()
    recorder = Recorder(parts.data.num_clients, ledger, watch)
    host = ClientHost(parts, engine, bus.clients, initial, tasks, log.warning)
    observer = Observer(parts, engine, host, trace)
    conductor = Conductor(parts, engine, bus.server, initial, observer, recorder, trace, log)
    bus.presence = presence = _presence(parts, bus, engine, host, trace)
    tasks.start(host.run(), "client host")
    tasks.start(conductor.listen(), "server inbox")
    try:
        await tasks.until(conductor.run())
    finally:
        if presence is not None:
            presence.close()
    simulated_s = clock.now_s()
    dispatches.finish(clock.now_ns())
    check_counts(ledger, recorder)
    check_dispatches(dispatches, recorder)
    if parts.verify:
        check_trace(trace, ledger)
        check_phases(trace, dispatches)
    return RunResult(
        simulated_s,
        tuple(recorder.rows),
        recorder.by_client,
        ledger,
        dispatches,
        recorder.drops,
        recorder.reasons,
        trace.hash(),
        await observer.model_hash(conductor.state, conductor.merged, parts.rounds),
    )


def _presence(
    parts: Parts, bus: MemoryBus, engine: Engine, host: ClientHost, trace: Trace
) -> Presence | None:
    """Return who watches the clients at work; nobody where none ever goes away."""
    if parts.fleet.is_steady:
        return None

    def give_up(client: int, cause: str) -> None:
        host.abandon(client)
        bus.cancel(client, cause)

    return Presence(parts.fleet, parts.on_leave, (bus, engine), give_up, trace, parts.key)


def _links(parts: Parts) -> Links:
    fleet, server = parts.fleet, parts.fleet.server
    return Links(
        fleet.values("up"),
        fleet.values("down"),
        fleet.values("latency"),
        server.up_bps,
        server.down_bps,
        server.latency_s,
        fleet.traces("up"),
        fleet.traces("down"),
    )
