"""One run in virtual time, from ready-made parts to a result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from fedsim import clock
from fedsim.bus import Ledger, Log, MemoryBus
from fedsim.clock import Trace
from fedsim.engine.engine import Engine
from fedsim.errors import UserError
from fedsim.params import spreading, unwarned
from fedsim.runtime import told_losses
from fedsim.runtime.changeable_settings import Stages, changeable
from fedsim.runtime.clients.batteries import Meter
from fedsim.runtime.clients.cohort_driver import cohort_drivers
from fedsim.runtime.clients.contexts import Contexts
from fedsim.runtime.clients.host import ClientHost
from fedsim.runtime.clients.interrupted_work import Churn
from fedsim.runtime.evaluation import Observer
from fedsim.runtime.message_codecs import MessageCodecs
from fedsim.runtime.parts import Parts
from fedsim.runtime.past.journal import Keeper
from fedsim.runtime.past.repeated_hooks import Past
from fedsim.runtime.past.snapshot import Snapshot
from fedsim.runtime.records.recorder import Observe, Recorder, silent, unobserved
from fedsim.runtime.records.result import RoundRow, RunResult
from fedsim.runtime.server.actor import ServerActor
from fedsim.runtime.tasks import Tasks
from fedsim.wire import COMMON, Kinds

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
    try:
        with unwarned(), spreading(engine.executor.spread):
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
    if faults := list(parts.misfits()):
        raise UserError("\n".join(map(str, faults)))
    return Engine(parts.executor, parts.resources(), trace, parts.slowdowns())


def kinds_of(parts: Parts) -> Kinds:
    """Return the kinds of message that may travel."""
    algorithm = parts.algorithm
    plain = (*COMMON, *algorithm.messages, *told_losses.kinds(algorithm, parts.selector))
    return Kinds((*plain, *MessageCodecs.of(parts).kinds(plain)))


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
    carrier = parts.carrier(trace, verify=parts.verify)
    kinds, retry = kinds_of(parts), parts.retry
    bus = MemoryBus(carrier, kinds, ledger, trace, parts.overhead, verify=parts.verify, retry=retry)
    initial, tasks = parts.initial(), Tasks()
    if past is not None:
        past.begin(initial)
    contexts = Contexts(parts, engine, initial, log.warning, log.info)
    host = ClientHost(parts, contexts, bus.clients, tasks, past=past)
    observer = Observer(parts, engine, contexts, host.states, trace)
    journal, meter = None if keeper is None else keeper.journal, parts.meter(trace, recorder.dispatches)
    actor = ServerActor(
        parts, engine, bus.server, initial, observer, recorder, trace, log, past, journal, meter=meter
    )
    actor.stages = stages
    if keeper is not None:
        take = partial(Snapshot.of, actor, host, bus)
        actor.keep = partial(keeper.end_round, snapshot=take, initial=initial)
    bus.presence = presence = _presence(parts, bus, engine, host, trace, meter)
    actor.cohorts = cohorts = cohort_drivers(parts, host, bus, presence, engine, trace)
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
    )


def _presence(
    parts: Parts, bus: MemoryBus, engine: Engine, host: ClientHost, trace: Trace, meter: Meter | None
) -> Churn | None:
    """Return who watches the clients at work; nobody where none ever goes away."""
    crashes = parts.crashes()
    stays = parts.fleet.is_always_there and not parts.fleet.drops_out
    if stays and crashes is None and meter is None:
        return None

    def give_up(client: int, cause: str) -> None:
        host.abandon(client)
        bus.cancel(client, cause)

    return Churn(parts, (bus, engine), give_up, trace, parts.key, crashes, meter)
