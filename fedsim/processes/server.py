"""The server process of a run over sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from fedsim.bus import Ledger, Log
from fedsim.bus.http.access import Access, ClientRanges, is_loopback, new_token
from fedsim.bus.http.messages import Names
from fedsim.bus.http.server import HttpServer
from fedsim.clock import Trace
from fedsim.clock.paced_loop import PacedLoop
from fedsim.data.fingerprints import fingerprint
from fedsim.errors import FedsimError, FileError, UserError
from fedsim.network import OverheadConfig
from fedsim.processes.addresses_and_tls import Address, reason, server_tls
from fedsim.processes.children import ChildProcesses
from fedsim.runtime.parts import Parts
from fedsim.runtime.past.journal import Keeper
from fedsim.runtime.past.server_past import ServerPast
from fedsim.runtime.records.recorder import Observe, unobserved
from fedsim.runtime.records.result import RoundRow, RunResult
from fedsim.runtime.run import kinds_of
from fedsim.runtime.sockets.emulate import check_emulation, emulate
from fedsim.runtime.sockets.handshake import Greeting
from fedsim.runtime.sockets.serve import serve
from fedsim.scenario.build import Plan

TOLD = {
    "process joined": "the process of clients {clients} has joined",
    "process gone": "the process of clients {clients} is gone: {why}; it may come back",
    "process left": "the process of clients {clients} has left: {why}",
    "process refused": "a process was refused: {why}",
    "states lost": "what clients {clients} held, if anything, is lost: their process is new, or was away",
    "clients missing": "beginning without {count} of {of} clients",
}
"""Lines for a person, by events of the log."""


@dataclass(slots=True)
class _PrintingLog:
    """A log that also tells a person which processes join and leave; notes of clients are logged alone.

    Attributes:
        log: The log.
        tell: Takes a line for a person.
        num_clients: Clients of the run.
    """

    log: Log
    tell: Callable[[str], None]
    num_clients: int

    def info(self, event: str, **values: Any) -> Any:
        """Note something ordinary."""
        self._tell(event, values)
        return self.log.info(event, **values)

    def warning(self, event: str, **values: Any) -> Any:
        """Note something that a reader may have to know."""
        self._tell(event, values)
        return self.log.warning(event, **values)

    def _tell(self, event: str, values: Mapping[str, Any]) -> None:
        if event in TOLD and "told_by" not in values:  # by a client, who may say anything
            again = " again" if values.get("resumed") else ""
            self.tell(TOLD[event].format(**values, of=self.num_clients) + again)


@dataclass(kw_only=True)
class ServerProcess:
    """The server of a run over sockets; :func:`fedsim.report.record_run.record` calls it as its ``perform``.

    Attributes:
        plan: What is run.
        address: Where to listen.
        tls_cert: Certificate, in PEM.
        tls_key: Its private key, in PEM.
        tokens: File of tokens to ask for.
        insecure: Whether to listen beyond this machine without TLS or without tokens all the same.
        access: Who may host which clients; None for what the file of tokens says, or everybody without one.
        wait_s: Begin after this time with the clients that have joined; None to wait for all.
        listening: Called with the URL once the server listens.
        tell: Called with a line for a person when a process joins or leaves.
        children: Returns the client processes that this process starts, given the address.
        speed_up: Of an emulation, emulated seconds in a real one; None for none.
    """

    plan: Plan
    address: Address
    tls_cert: str | Path | None = None
    tls_key: str | Path | None = None
    tokens: str | Path | None = None
    insecure: bool = False
    access: Access | None = None
    wait_s: float | None = None
    listening: Callable[[str], None] = lambda url: None
    tell: Callable[[str], None] | None = None
    children: Callable[[Address], ChildProcesses] = lambda address: ChildProcesses((), {})
    speed_up: float | None = None
    _round: int = field(default=0, init=False)
    _has_row: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        until = self.plan.parts.until
        if self.speed_up is not None:
            check_emulation(self.plan.parts, self.speed_up)
        elif until is not None and until.joules is not None:
            raise UserError(
                "run.until.joules: over sockets nobody knows what devices draw: give another budget, or "
                "run.rounds alone"
            )
        self._tls = server_tls(self.tls_cert, self.tls_key)
        self._access = self.access or (
            Access.open() if self.tokens is None else Access.from_file(self.tokens)
        )
        is_safe = self.insecure or (self._tls is not None and not self._access.is_open)
        if not is_safe and not is_loopback(self.address.host):
            raise UserError(
                f"{self.address} can be reached from other machines: give a certificate and its key "
                "(tls_cert, tls_key) and tokens, or say insecure if you want everybody there to see and to "
                "join this run"
            )

    @classmethod
    def with_children(cls, plan: Plan, num_processes: int, speed_up: float | None = None) -> ServerProcess:
        """Return a server at a loopback address that starts its client processes itself, with a token."""
        clients = len(plan.parts.fleet)
        num_processes = min(num_processes, clients)
        ends = [clients * place // num_processes for place in range(num_processes + 1)]
        secret, line = new_token(ClientRanges.parse(f"0-{clients - 1}"))
        workers = max(1, plan.parts.executor.config.workers // num_processes)

        def children(here: Address) -> ChildProcesses:
            options = ("--workers", str(workers), "--while-fed")
            commands = [
                ("join", f"http://{here}", "--clients", f"{first}-{end - 1}", *options)
                for first, end in pairwise(ends)
            ]
            return ChildProcesses(commands, {"FEDSIM_TOKEN": secret})

        access = Access.from_lines([line])
        address = Address("127.0.0.1", 0)
        return cls(plan=plan, address=address, access=access, children=children, speed_up=speed_up)

    def __call__(self, parts: Parts, **observers: Any) -> RunResult:
        """Run."""
        loop = None if self.speed_up is None else partial(PacedLoop, self.speed_up)
        with asyncio.Runner(loop_factory=loop) as runner:
            return runner.run(self._run(parts, **observers))

    async def _run(
        self,
        parts: Parts,
        *,
        names: Names | None = None,
        past: ServerPast | None = None,
        keeper: Keeper | None = None,
        complete: Callable[[RunResult], object],
        trace: Trace,
        log: Log,
        watch: Callable[[RoundRow], None],
        observe: Observe = unobserved,
    ) -> RunResult:
        def note_round(row: RoundRow) -> None:
            self._round = min(row.round, parts.num_rounds)  # a row may come after the last
            self._has_row = True
            watch(row)

        if self.tell is not None:
            log = _PrintingLog(log, self.tell, parts.data.num_clients)
        ledger, data, emulates = Ledger(), fingerprint(parts.data), self.speed_up is not None
        scenario, algorithm = self.plan.scenario_toml, self.plan.algorithm
        server = HttpServer(
            kinds=kinds_of(parts),
            # Of an emulation, another bus enters frames.
            ledger=Ledger() if emulates else ledger,
            trace=Trace() if emulates else trace,
            overhead=OverheadConfig(protocol="bus", tls=self._tls is not None),
            access=self._access,
            greeting=Greeting(scenario, algorithm, data, parts.verify, emulates).encode(),
            num_clients=parts.data.num_clients,
            log=log,
            health=self._health,
            names=names,
            firsts={} if past is None else past.firsts,
        )
        try:
            port = await server.start(self.address.host, self.address.port, self._tls)
        except OSError as error:
            raise UserError(
                f"cannot listen at {self.address}: {reason(error)}. Choose another HOST:PORT to listen at"
            ) from None
        why, is_end = "it was stopped", True
        try:
            here = Address(self.address.host, port)
            self.listening(f"{'http' if self._tls is None else 'https'}://{here}")
            async with self.children(here) as children:
                common: Any = {"ledger": ledger, "trace": trace, "log": log, "watch": note_round}
                common |= {"observe": observe, "wait_s": self.wait_s}
                if emulates:
                    work = emulate(parts, server, **common)
                else:
                    num_kept = self.plan.checkpoint.keep
                    work = serve(parts, server, **common, past=past, keeper=keeper, num_kept=num_kept)
                result = await children.during(work)
                # If this process is killed before its end, those of clients are still there for the next one.
                writing = asyncio.create_task(asyncio.to_thread(complete, result))
                try:
                    await asyncio.shield(writing)
                finally:
                    await writing  # also where this process is interrupted
                    server.finish()
                await children.ended()
            return result
        except BaseException as error:
            has_failed = isinstance(error, FedsimError) and not isinstance(error, FileError)
            why = f"it failed: {error}" if isinstance(error, FedsimError) else why
            # Else the run stays, and a server that is started again goes on with it.
            is_end = has_failed or keeper is None or not self._has_row
            raise
        finally:
            await server.close(why=why, for_good=is_end)

    def _health(self) -> Mapping[str, Any]:
        return {
            "scenario": self.plan.name,
            "algorithm": self.plan.algorithm,
            "round": self._round,
            "rounds": self.plan.parts.rounds,
        }
