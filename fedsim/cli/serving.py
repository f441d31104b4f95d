"""The run of a plan over sockets, seen from the server."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fedsim.bus import Ledger
from fedsim.bus.http.access import Access
from fedsim.bus.http.server import HttpServer
from fedsim.cli.processes import Processes
from fedsim.cli.sockets import Address, reason
from fedsim.clock import Trace
from fedsim.data import fingerprint
from fedsim.errors import UserError
from fedsim.network import OverheadConfig
from fedsim.report.plan import Plan
from fedsim.runtime.greeting import Greeting
from fedsim.runtime.log import Log
from fedsim.runtime.parts import Parts
from fedsim.runtime.result import RoundRow, RunResult
from fedsim.runtime.run import kinds_of
from fedsim.runtime.serve import serve


@dataclass(slots=True)
class _Telling:
    """A log that also tells a person who comes and goes; what clients themselves note is for the log alone.

    Attributes:
        log: The log.
        tell: Is given a line.
        expected: Clients that the run has.
    """

    log: Log
    tell: Callable[[str], None]
    expected: int

    def info(self, event: str, **values: Any) -> Any:
        """Note something ordinary."""
        if "told_by" in values:
            return self.log.info(event, **values)
        if event == "process joined":
            again = " again" if values["resumed"] else ""
            self.tell(f"the process of clients {values['clients']} has joined{again}")
        elif event == "process gone":
            self.tell(f"the process of clients {values['clients']} is gone; it may come back")
        return self.log.info(event, **values)

    def warning(self, event: str, **values: Any) -> Any:
        """Note something that a reader may have to know."""
        if event == "clients missing" and "told_by" not in values:
            self.tell(f"beginning without {values['count']} of {self.expected} clients")
        return self.log.warning(event, **values)


@dataclass(slots=True, kw_only=True)
class OverSockets:
    """Does a run as the server of client processes; what :func:`fedsim.report.record.record` performs.

    Attributes:
        plan: What is run.
        address: Where to listen.
        tls: How to encrypt; None for not at all.
        access: Who may host which clients.
        wait_s: Begin after so long with whoever is there; None to wait for all.
        listening: Is told the address once the server listens.
        tell: Is told in words who comes and goes.
        processes: Makes the processes that are run beside, given the address.
    """

    plan: Plan
    address: Address
    tls: ssl.SSLContext | None = None
    access: Access
    wait_s: float | None = None
    listening: Callable[[Address], None] = lambda address: None
    tell: Callable[[str], None] | None = None
    processes: Callable[[Address], Processes] = lambda address: Processes((), {})
    _round: int = field(default=0, init=False)

    def __call__(
        self, parts: Parts, *, trace: Trace, log: Log, watch: Callable[[RoundRow], None]
    ) -> RunResult:
        """Run.

        Raises:
            RunError: The run failed, or a process beside it.
            UserError: The address cannot be listened at.
        """
        return asyncio.run(self._run(parts, trace, log, watch))

    async def _run(
        self, parts: Parts, trace: Trace, log: Log, watch: Callable[[RoundRow], None]
    ) -> RunResult:
        def note_round(row: RoundRow) -> None:
            self._round = min(row.round, parts.rounds)  # a row may come after the last
            watch(row)

        if self.tell is not None:
            log = _Telling(log, self.tell, parts.data.num_clients)
        ledger = Ledger()
        data = fingerprint(parts.data)
        server = HttpServer(
            kinds=kinds_of(parts),
            ledger=ledger,
            trace=trace,
            overhead=OverheadConfig(protocol="bus", tls=self.tls is not None),
            access=self.access,
            greeting=Greeting(self.plan.scenario_toml, self.plan.algorithm, data, parts.verify).encode(),
            num_clients=parts.data.num_clients,
            log=log,
            health=self._health,
        )
        try:
            port = await server.start(self.address.host, self.address.port, self.tls)
        except OSError as error:
            raise UserError(
                f"cannot listen at {self.address}: {reason(error)}. Choose another --listen HOST:PORT"
            ) from None
        try:
            here = Address(self.address.host, port)
            self.listening(here)
            async with self.processes(here) as beside:
                work = serve(
                    parts,
                    server,
                    ledger=ledger,
                    trace=trace,
                    log=log,
                    watch=note_round,
                    wait_s=self.wait_s,
                )
                result = await beside.during(work)
                server.finish()
                await beside.ended()
            return result
        finally:
            await server.close()

    def _health(self) -> Mapping[str, Any]:
        return {
            "scenario": self.plan.name,
            "algorithm": self.plan.algorithm,
            "round": self._round,
            "rounds": self.plan.parts.rounds,
        }
