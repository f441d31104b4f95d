"""Emulations over real sockets: the server on its paced loop, and client processes in threads here."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import Any

from fedsim.bus import Ledger
from fedsim.bus.http.access import Access, ClientRanges
from fedsim.bus.http.client import HttpClient
from fedsim.bus.http.server import HttpServer
from fedsim.clock import Trace
from fedsim.clock.paced_loop import PacedLoop
from fedsim.runtime.parts import Parts
from fedsim.runtime.records.result import RunResult
from fedsim.runtime.run import kinds_of
from fedsim.runtime.sockets.emulate import emulate
from fedsim.runtime.sockets.join import host
from tests.bus.http.conftest import Log

TIMEOUT_S = 60.0
"""More than any machine takes."""
Change = Callable[[HttpClient], None]


class Emulated:
    """The server's side of an emulation, and what its client processes have raised."""

    def __init__(self) -> None:
        self.ledger, self.trace, self.log = Ledger(), Trace(keep=True), Log()
        self.server: Any = None
        self.errors: list[Exception] = []
        self._hosting: dict[str, tuple[asyncio.AbstractEventLoop, Any]] = {}

    def host(self, make: Callable[[], Parts], url: str, share: str, change: Change) -> None:
        """Be a client process, in this thread, until the run is over."""

        async def main() -> None:
            self._hosting[share] = asyncio.get_running_loop(), asyncio.current_task()
            client = HttpClient(url, clients=ClientRanges.parse(share))
            change(client)
            try:
                await client.connect()
                await host(make(), client, emulates=True)
            finally:
                await client.close(1.0)

        try:
            with suppress(asyncio.CancelledError):
                asyncio.run(main())
        except Exception as error:
            self.errors.append(error)

    def stop(self, share: str) -> None:
        """Let a client process leave."""
        loop, task = self._hosting[share]
        loop.call_soon_threadsafe(task.cancel)


def emulated(
    make: Callable[[], Parts],
    shares: Sequence[str] = ("0,2", "1,3"),
    speed_up: float = 20.0,
    *,
    change: Change = lambda client: None,
    during: Callable[[Emulated], Any] | None = None,
    wait_s: float | None = 30.0,
    **observers: Any,
) -> tuple[RunResult, Emulated]:
    """Emulate; return the result and the server's side, closed.

    ``during`` is awaited, as a task, while the run goes on; ``observers`` are those of :func:`emulate`.
    """
    parts, world = make(), Emulated()

    async def main() -> RunResult:
        world.server = server = HttpServer(
            kinds=kinds_of(parts),
            ledger=Ledger(),
            trace=Trace(),
            access=Access.open(),
            greeting=b"",
            num_clients=parts.data.num_clients,
            log=world.log,
        )
        port = await server.start("127.0.0.1", 0)
        url = f"http://127.0.0.1:{port}"
        threads = [Thread(target=world.host, args=(make, url, share, change)) for share in shares]
        for thread in threads:
            thread.start()
        beside = None if during is None else asyncio.ensure_future(during(world))
        try:
            async with asyncio.timeout(TIMEOUT_S):
                common: Any = {"ledger": world.ledger, "trace": world.trace, "log": world.log} | observers
                result = await emulate(parts, server, **common, wait_s=wait_s)
            server.finish()
            return result
        finally:
            if beside is not None:
                beside.cancel()
                with suppress(asyncio.CancelledError):
                    await beside
            await server.close(2.0)
            for thread in threads:
                await asyncio.to_thread(thread.join, TIMEOUT_S)

    with asyncio.Runner(loop_factory=partial(PacedLoop, speed_up)) as runner:
        return runner.run(main()), world
