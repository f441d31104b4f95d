"""The server's process of a run over sockets: the same actor, in real time.

Leases, deadlines and pacing count real seconds. The scenario's speeds, links and presence of clients play no
part, since processes have their own; durations of jobs, crashes and slow devices neither. A client whose
process is away is asked like any other and runs out of its lease.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fedsim.algorithms.contexts import Initial
from fedsim.bus import Ledger, Log
from fedsim.clock import Trace, start_clock
from fedsim.errors import DecodeError, RunError
from fedsim.fleet import Fleet
from fedsim.models import Architectures
from fedsim.network.fault_settings import ATTACKS, OF_FRAMES
from fedsim.params import Model, Tree, unwarned
from fedsim.quoting import MAX_SHOWN, quoted, shortened
from fedsim.runtime import state_encoding
from fedsim.runtime.clients.contexts import Contexts
from fedsim.runtime.clients.held import Held
from fedsim.runtime.evaluation import FinalModels, Observer
from fedsim.runtime.parts import Parts
from fedsim.runtime.past.journal import Keeper
from fedsim.runtime.past.server_past import STARTED_AGAIN, ServerPast, ServerSnapshot
from fedsim.runtime.records.recorder import Observe, Recorder, silent, unobserved
from fedsim.runtime.records.result import RoundRow, RunResult
from fedsim.runtime.run import open_engine
from fedsim.runtime.server.actor import ServerActor
from fedsim.runtime.server.open_dispatches import DROP
from fedsim.runtime.start_values import StartValues
from fedsim.runtime.tasks import Tasks
from fedsim.walk import instances

if TYPE_CHECKING:
    from fedsim.bus.http.server import HttpServer


QUESTION = b"held"
"""The observer's question for the state of a client; an empty answer if there is none."""

STATE_TIMEOUT_S = 30.0
"""Time for a client's state to arrive."""

AT_ONCE = 64
"""Questions at a time."""


class RemoteStates:
    """Fetches the states of clients from their processes; apart from the run, so no ledger has a row of it.

    A client that was never asked, or whose process has not been seen, has the state that it joins with. So,
    with a warning, has one whose process does not answer, or with what is no state of this algorithm.
    """

    def __init__(
        self, parts: Parts, bus: HttpServer, contexts: Contexts, initial: Initial, trace: Trace, log: Log
    ) -> None:
        self._bus = bus
        self._contexts = contexts
        self._initial = initial
        self._architectures = Architectures(parts.architectures)
        self._classes = state_encoding.classes_of(parts.algorithm)
        self._log = log
        # Both are asked for membership only: a set has no order.
        self._asked, self._seen = set[int](), set[int]()
        listeners: dict[str, Any] = {
            "dispatch": lambda at_ns, client, *_: self._asked.add(client),
            "merge": lambda at_ns, number, exchange, version, clients, _: self._seen.update(clients),
        }
        trace.listen(listeners)
        self._gate = asyncio.Semaphore(AT_ONCE)

    def look(self) -> None:
        """Note whose processes are there."""
        self._seen.update(
            client for client in range(len(self._contexts.parts.fleet)) if self._bus.is_connected(client)
        )

    async def __call__(self, clients: Mapping[int, int]) -> Sequence[Any]:
        """Return the states of clients, told the newest merged dispatch of each."""
        deadline_s = asyncio.get_running_loop().time() + STATE_TIMEOUT_S
        return await asyncio.gather(
            *(self._one(client, merged, deadline_s) for client, merged in clients.items())
        )

    async def _one(self, client: int, merged: int, deadline_s: float) -> Any:
        if self._bus.is_connected(client):
            self._seen.add(client)
        if client not in self._asked or client not in self._seen:
            return self._contexts.joined(client)
        try:
            async with self._gate, asyncio.timeout_at(deadline_s):
                await self._bus.wait_for_clients([client])
                data = await self._bus.probe(client, QUESTION, STATE_TIMEOUT_S)
            if data:
                return self._checked(data).settled(merged)
        except (TimeoutError, DecodeError, RunError) as error:
            reason = str(error) or "its process does not answer"
            self._log.warning("evaluated as it joined", client=client, reason=shortened(reason, MAX_SHOWN))
        return self._contexts.joined(client)

    def _checked(self, data: bytes) -> Held:
        held = state_encoding.decode_held(data, self._classes)
        for model in instances(held, Model):
            label = model.architecture
            like = self._architectures.start(label, self._initial)
            if like is None or not (
                _alike(model.params, like.params) and _alike(model.buffers, like.buffers)
            ):
                raise DecodeError(f"a model that calls itself {quoted(label)} and is not one")
        return held


def _alike(left: Tree, right: Tree) -> bool:
    return list(left) == list(right) and all(
        (array.dtype, array.shape) == (right[name].dtype, right[name].shape) for name, array in left.items()
    )


def unused(parts: Parts) -> str | None:
    """Return a remark on settings that have no effect in real time."""
    ignored = []
    if not parts.fleet.is_always_there:
        ignored.append("availability")
    if parts.fleet.drops_out:
        ignored.append("drop_out")
    if parts.fleet.has_batteries:
        ignored.append("battery")
    kinds = dict.fromkeys(one.kind for one in parts.faults if one.kind not in OF_FRAMES | ATTACKS)
    remarks = []
    if parts.cells is not None:
        remarks.append("[[cell]] plays no part over sockets: client processes have their own networks")
    if parts.edges is not None:
        remarks.append("[[edge]] plays no part over sockets: the server's process asks all clients itself")
    if kinds:
        remarks.append(
            f"[[faults]] of the kind {' and '.join(map(repr, kinds))} play no part over sockets: client "
            "processes have their own speed, and crash by themselves"
        )
    if ignored:
        remarks.append(
            f"{' and '.join(ignored)} of [[fleet]] play no part over sockets: clients are there as their "
            "processes are, and a process that is away runs out of participation.client_timeout"
        )
    return "; ".join(remarks) or None


async def serve(
    parts: Parts,
    server: HttpServer,
    *,
    ledger: Ledger,
    trace: Trace,
    log: Log | None = None,
    watch: Callable[[RoundRow], None] = lambda row: None,
    observe: Observe = unobserved,
    wait_s: float | None = None,
    past: ServerPast | None = None,
    keeper: Keeper | None = None,
    num_kept: int = 1,
) -> RunResult:
    """Wait for clients, run, and return what the run has shown; the server stays as it is.

    Args:
        parts: What the run is made of.
        server: The server's endpoint.
        ledger: Where the endpoint enters frames.
        trace: Where it records events.
        log: Where drops, rejections and rounds are noted.
        watch: Told of each round as it ends, also of those of the past.
        observe: Given what will record the run.
        wait_s: Begin after so long with the clients that have joined; None to wait for all.
        past: What the server goes on from; None where the run begins.
        keeper: Keeps what it needs to go on later; None where nothing is kept.
        num_kept: How many checkpoints there are at most.

    Raises:
        RunError: The run failed, or no client has come.
    """
    log = log or silent()
    engine = open_engine(parts, trace)
    began_ns = 0 if past is None else past.at_ns
    try:
        start_clock(began_ns)
        # Who is there is for the sockets to say, not for a model.
        fleet = Fleet(parts.fleet.groups, parts.fleet.server, parts.fleet.server_model)
        present = replace(parts, fleet=fleet)
        initial, tasks = parts.initial(), Tasks()
        recorder = Recorder(
            parts.data.num_clients, ledger, trace, log, watch, keep_spans=parts.energy is not None
        )
        observe(recorder, parts)
        contexts = Contexts(present, engine, initial)
        states = RemoteStates(present, server, contexts, initial, trace, log)
        observer = Observer(present, engine, contexts, states, trace)
        actor = ServerActor(present, engine, server, initial, observer, recorder, trace, log)
        actor.keep = _RoundEnds(actor, server, keeper, initial, past.firsts if past else {}, num_kept).note
        lose = None if past is None else past.tell(trace, ledger)
        if past is not None:
            actor.remember(past.load(initial).values)
        if (remark := unused(parts)) is not None:
            log.warning("real time", remark=remark)
        await gather_clients(parts, server, wait_s, log)
        states.look()
        start_clock(began_ns)
        server.meet_faults(parts.faults_of_frames(), parts.retry)
        log.info("start", after_round=recorder.rows[-1].round if recorder.rows else 0)
        if lose is not None:
            lose()
            for client, dispatch in recorder.dispatches.unanswered():
                trace.record(DROP, client, dispatch, STARTED_AGAIN)

        async def conduct() -> Callable[[FinalModels], RunResult]:
            await actor.run()
            # At this very instant: what comes from now on belongs to no round.
            server.seal()
            return recorder.close(verify=parts.verify, is_going_on=True)

        server.feed(tasks.guarded(actor.take))
        with unwarned():
            result = await tasks.until(conduct())
            models = await observer.final_models(actor.state, actor.merged, recorder.num_rounds)
        return replace(result(models), num_saturated=sum(actor.saturations))
    finally:
        engine.close()


class _RoundEnds:
    """At the ends of rounds keeps checkpoints, and tells processes which states they need."""

    def __init__(
        self,
        actor: ServerActor,
        server: HttpServer,
        keeper: Keeper | None,
        initial: StartValues,
        firsts: Mapping[int, int],
        num_kept: int,
    ) -> None:
        self._actor, self._server, self._keeper, self._initial = actor, server, keeper, initial
        # The next dispatch of each client that has had one: at the last end of a round, at kept checkpoints.
        self._last = firsts
        self._kept = deque([firsts], maxlen=max(1, num_kept))

    def note(self, num_ended: int) -> None:
        """A round has ended."""
        now = self._actor.dispatches.next_numbers()
        if self._keeper is not None and self._keeper.end_round(num_ended, self._snapshot, self._initial):
            self._kept.append(now)
        marks = {
            client: sorted({number, *(one.get(client, 0) for one in self._kept)})
            for client, number in now.items()
            if number != self._last.get(client)
        }
        self._last = now
        self._server.mark(marks)

    def _snapshot(self) -> ServerSnapshot:
        return ServerSnapshot(self._actor.remembered(), self._actor.has_used_length)


async def gather_clients(
    parts: Parts, server: HttpServer, wait_s: float | None, log: Log, *, are_all_needed: bool = False
) -> None:
    """Wait for the clients that can take part; a RunError if none has come, or not all that are needed."""
    clients = parts.eligible().tolist()
    try:
        async with asyncio.timeout(wait_s):
            await server.wait_for_clients(clients)
    except TimeoutError:
        missing = [client for client in clients if not server.is_connected(client)]
        if len(missing) == len(clients):
            raise RunError(f"no client has come within {wait_s:g} s: start some with 'fedsim join'") from None
        if are_all_needed:
            raise RunError(
                f"{len(missing)} clients have not come within {wait_s:g} s, such as client {missing[0]}, and "
                "an emulation needs all: start more with 'fedsim join'"
            ) from None
        log.warning("clients missing", count=len(missing), first=missing[:20])
