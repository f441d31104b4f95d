"""The server's process of a run over sockets: the same actor, in real time.

Leases, deadlines and pacing count real seconds. The scenario's speeds, links and presence of clients play no
part, since processes have their own; durations of jobs neither. A client whose process is away is asked like
any other and runs out of its lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from fedsim.bus import Ledger, Log
from fedsim.clock import Trace, start_clock
from fedsim.errors import RunError
from fedsim.fleet import Fleet
from fedsim.params import unwarned
from fedsim.runtime.clients.contexts import Contexts
from fedsim.runtime.evaluation import FinalModels, Observer
from fedsim.runtime.parts import Parts
from fedsim.runtime.records.recorder import Observe, Recorder, silent, unobserved
from fedsim.runtime.records.result import RoundRow, RunResult
from fedsim.runtime.run import open_engine
from fedsim.runtime.server.actor import ServerActor
from fedsim.runtime.sockets.remote_states import RemoteStates
from fedsim.runtime.tasks import Tasks

if TYPE_CHECKING:
    from fedsim.bus.http.server import HttpServer


def unused(parts: Parts) -> str | None:
    """Say what of a scenario's fleet plays no part in real time, where it would have mattered."""
    said = []
    if not parts.fleet.is_always_there:
        said.append("availability")
    if parts.fleet.drops_out:
        said.append("drop_out")
    if not said:
        return None
    return (
        f"{' and '.join(said)} of [[fleet]] play no part over sockets: clients are there as their processes "
        "are, and a process that is away runs out of participation.client_timeout"
    )


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
) -> RunResult:
    """Wait for clients, run, and return what the run has shown; the server stays as it is."""
    log = log or silent()
    engine = open_engine(parts, trace)
    try:
        start_clock()  # of the log, while it waits
        if (remark := unused(parts)) is not None:
            log.warning("real time", remark=remark)
        await _gather(parts, server, wait_s, log)
        start_clock()
        log.info("start")
        # Who is there is for the sockets to say, not for a model.
        present = replace(
            parts, fleet=Fleet(parts.fleet.groups, parts.fleet.server, parts.fleet.server_model)
        )
        initial, tasks = parts.initial(), Tasks()
        recorder = Recorder(parts.data.num_clients, ledger, trace, log, watch)
        observe(recorder, parts)
        contexts = Contexts(present, engine, initial)
        states = RemoteStates(present, server, contexts, initial, trace, log)
        observer = Observer(present, engine, contexts, states, trace)
        actor = ServerActor(present, engine, server, initial, observer, recorder, trace, log)

        async def conduct() -> Callable[[FinalModels], RunResult]:
            await actor.run()
            # At this very instant: what comes from now on belongs to no round.
            server.seal()
            return recorder.close(verify=parts.verify, is_going_on=True)

        tasks.start(actor.listen(), "server inbox")
        with unwarned():
            result = await tasks.until(conduct())
            models = await observer.final_models(actor.state, actor.merged, recorder.num_rounds)
        return result(models)
    finally:
        engine.close()


async def _gather(parts: Parts, server: HttpServer, wait_s: float | None, log: Log) -> None:
    """Wait for the clients that can take part."""
    clients = parts.eligible().tolist()
    try:
        async with asyncio.timeout(wait_s):
            await server.attendance(clients)
    except TimeoutError:
        missing = [client for client in clients if not server.attended(client)]
        if len(missing) == len(clients):
            raise RunError(f"no client has come within {wait_s:g} s: start some with 'fedsim join'") from None
        log.warning("clients missing", count=len(missing), first=missing[:20])
