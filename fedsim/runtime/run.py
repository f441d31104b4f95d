"""One run in virtual time, from ready-made parts to a result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TypeVar

from fedsim import clock
from fedsim.bus import Ledger, Log, MemoryBus
from fedsim.clock import Trace
from fedsim.clock.running import quiet_collector
from fedsim.engine.engine import Engine
from fedsim.errors import UserError
from fedsim.params import spreading, unwarned
from fedsim.runtime import told_losses
from fedsim.runtime.changeable_settings import Settings, Stages, change, changeable, changes
from fedsim.runtime.clients.batteries import Meter
from fedsim.runtime.clients.cohort_driver import CohortDrivers
from fedsim.runtime.clients.contexts import Contexts
from fedsim.runtime.clients.host import ClientHost
from fedsim.runtime.clients.interrupted_work import Churn
from fedsim.runtime.evaluation import Observer
from fedsim.runtime.message_codecs import CodecsOfRounds
from fedsim.runtime.parts import Parts
from fedsim.runtime.past.journal import Keeper
from fedsim.runtime.past.repeated_hooks import Past
from fedsim.runtime.past.snapshot import Snapshot
from fedsim.runtime.records.edge_frames import EdgeFrames
from fedsim.runtime.records.recorder import Observe, Recorder, silent, unobserved
from fedsim.runtime.records.result import RoundRow, RunResult
from fedsim.runtime.server.actor import ServerActor
from fedsim.runtime.server.edges import EdgeServers
from fedsim.runtime.tasks import Tasks
from fedsim.wire import COMMON, Kinds

E = TypeVar("E", bound=Engine)

__all__ = ["RunResult", "kinds_of", "open_engine", "run"]


def run(
    parts: Parts,
    *,
    trace: Trace | None = None,
    log: Log | None = None,
    watch: Callable[[RoundRow], None] = lambda row: None,
    observe: Observe = unobserved,
    rounds: int | None = None,
    past: Past | None = None,
    keeper: Keeper | None = None,
    stages: Stages | None = None,
) -> RunResult:
    """Run in virtual time, in this process.

    Args:
        parts: What the run is made of.
        trace: Where events are recorded; under ``parts.verify`` it must keep its records.
        log: Where drops, rejections and rounds are noted.
        watch: Told of each round as it ends.
        observe: Given what will record the run.
        rounds: Hold only so many of the rounds, as in a rehearsal: the algorithm is asked whether the parts
            suit it with all of them.
        past: What the run repeats before it goes on; None where it begins anew.
        keeper: Keeps what the run needs to be continued later; None where nothing is kept.
        stages: In a fork, what its settings are from the beginning on, and from the ends of rounds on.

    Raises:
        RunError: The run failed.
        UserError: The parts do not fit each other.
        ValueError: A trace that is not kept, under ``verify``.
    """
    trace = Trace(keep=parts.verify) if trace is None else trace
    if parts.verify and not trace.keep:
        raise ValueError("under verify the trace is checked, so it has to be kept: give Trace(keep=True)")
    engine = open_engine(parts, trace)
    if rounds is not None:
        parts = replace(parts, rounds=min(rounds, parts.num_rounds))
    if stages:
        parts = changeable(parts, stages)
        engine.slowdowns = parts.slowdowns
    try:
        # The collector skips what was there when it became quiet: the simulation is made after that, so that
        # its data set, which is in a cycle, is collected at the end.
        with unwarned(), spreading(engine.executor.spread), quiet_collector():
            simulation = _simulate(
                parts, engine, trace, log or silent(), watch, observe, past, keeper, stages or {}
            )
            return clock.run(simulation)
    finally:
        engine.close()


def open_engine(parts: Parts, trace: Trace) -> Engine:
    """Return who does the work of a run, to be closed by the caller.

    Raises:
        UserError: The parts do not fit each other.
    """
    return open_engine_of(Engine, parts, trace)


def open_engine_of(engine_class: type[E], parts: Parts, trace: Trace) -> E:
    """Return an engine of a class, likewise.

    Raises:
        UserError: The parts do not fit each other.
    """
    if faults := list(parts.misfits()):
        raise UserError("\n".join(map(str, faults)))
    return engine_class(parts.executor, parts.resources(), trace, parts.slowdowns)


def kinds_of(parts: Parts, stages: Stages | None = None) -> Kinds:
    """Return the kinds of message that may travel, in a fork in any stage."""
    algorithm = parts.algorithm
    plain = (*COMMON, *algorithm.messages, *told_losses.kinds(algorithm, parts.selector))
    return Kinds((*plain, *CodecsOfRounds(parts, stages or {}).kinds(plain)))


async def _simulate(
    parts: Parts,
    engine: Engine,
    trace: Trace,
    log: Log,
    watch: Callable[[RoundRow], None],
    observe: Observe,
    past: Past | None,
    keeper: Keeper | None,
    stages: Stages,
) -> RunResult:
    ledger = Ledger()
    recorder = Recorder(
        parts.data.num_clients, ledger, trace, log, watch, keep_spans=parts.energy is not None
    )
    observe(recorder, parts)
    plain = parts.network.carrier(parts.links(), verify=parts.verify)
    carrier, kinds, retry = parts.with_faults(plain, trace), kinds_of(parts, stages), parts.retry
    bus = MemoryBus(carrier, kinds, ledger, trace, parts.overhead, verify=parts.verify, retry=retry)
    initial, tasks = parts.initial(), Tasks()
    if past is not None:
        past.begin(initial)
    contexts = Contexts(parts, engine, initial, log.warning, log.info)
    host = ClientHost(parts, contexts, bus.clients, tasks, past=past, stages=stages)
    observer = Observer(parts, engine, contexts, host.states, trace)
    journal = None if keeper is None else keeper.journal
    meter = meter_of(parts, stages, trace, recorder)
    actor = ServerActor(
        *(parts, engine, bus.server, initial, observer, recorder, trace, log, past, journal),
        stages=stages,
        meter=meter,
    )
    if keeper is not None:
        take = partial(Snapshot.of, actor, host, bus)
        actor.keep = partial(keeper.end_round, snapshot=take, initial=initial)
    bus.presence = presence = presence_of(parts, bus, engine, host.abandon, trace, stages, meter)
    edge_frames = None
    if parts.edges is not None:
        actor.edges, edge_frames = EdgeServers(parts.edges, bus, trace, tasks), EdgeFrames(trace)
    actor.cohorts = cohorts = CohortDrivers(parts, host, bus, presence, engine, trace)

    def begin_stage(settings: Settings) -> Settings:
        """Let settings hold from now on; return those that are others than before."""
        nonlocal plain
        changed = changes(parts, settings)
        if "faults" in changed:
            host.settle_crashes()
        change(parts, changed)
        host.give_up_ahead()
        if cohorts is not None:
            cohorts.forget_hooks()
        engine.slowdowns = parts.slowdowns
        if "network" in changed:
            plain = parts.network.carrier(parts.links(), verify=parts.verify)
        is_other = changed.keys() & {"network", "faults"}
        carrier = parts.with_faults(plain, trace) if is_other else bus.carrier
        bus.change(carrier, parts.overhead, parts.retry)
        return changed

    actor.begin_stage = begin_stage
    bus.clients.feed(host.take)
    bus.server.feed(actor.take)
    try:
        await tasks.until(actor.run())
        if cohorts is not None:
            cohorts.check()
    finally:
        if presence is not None:
            presence.close()
    # The models at the end are hashed at an instant at which frames may still arrive.
    result = recorder.close(verify=parts.verify, is_going_on=not bus.is_idle)
    levels = meter.levels() if meter is not None and parts.fleet.has_batteries else None
    spent_j = meter.spent_j() if meter is not None and meter.is_metering_all else None
    final = result(await observer.final_models(actor.state, actor.merged, recorder.num_rounds))
    counts = {} if cohorts is None else cohorts.counts
    return replace(
        final,
        num_saturated=sum(actor.saturations),
        cohorts=counts,
        spent_j=spent_j,
        battery_levels=levels,
        edge_frames=edge_frames,
    )


def presence_of(
    parts: Parts,
    bus: MemoryBus,
    engine: Engine,
    abandon: Callable[[int], object],
    trace: Trace,
    stages: Stages,
    meter: Meter | None,
) -> Churn | None:
    """Return who watches the clients at work; nobody where none ever goes away."""
    faults = chain(parts.faults, *(settings["faults"] for settings in stages.values()))
    may_crash = any(fault.kind == "crash" for fault in faults)
    stays = parts.fleet.is_always_there and not parts.fleet.drops_out
    if stays and not may_crash and meter is None:
        return None

    def give_up(client: int, cause: str) -> None:
        abandon(client)
        bus.cancel(client, cause)

    return Churn(parts, (bus, engine), give_up, trace, parts.key, meter)


def meter_of(parts: Parts, stages: Stages, trace: Trace, recorder: Recorder) -> Meter | None:
    """Return what meters clients' energy; None where nothing depends on it."""
    budgets = [parts.until, *(settings["until"] for settings in stages.values())]
    is_watched = any(until is not None and until.joules is not None for until in budgets)
    if not (is_watched or parts.fleet.has_batteries):
        return None
    return Meter(parts.fleet, trace, recorder.dispatches, is_watched)
