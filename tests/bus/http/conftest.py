"""Real sockets on this machine: a server, client processes within this one, and a proxy that does harm."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl as tls
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from fedsim.bus import Delivery, Header, Ledger
from fedsim.bus.http.access import Access, ClientRanges
from fedsim.bus.http.client import HttpClient
from fedsim.bus.http.limits import HttpLimits
from fedsim.bus.http.server import HttpServer
from fedsim.clock import Trace
from fedsim.params import Model
from fedsim.wire import COMMON, Kinds, ModelBroadcast, ModelUpdate


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"stock": asyncio.new_event_loop}


LONGEST_S = 60.0
"""More than anything takes on any machine, however busy; nobody waits for it unless a test fails."""
QUICK = {
    "handshake_timeout_s": LONGEST_S,
    "heartbeat_s": 5.0,
    "hold_s": 0.001,
    "report_delay_s": 0.002,
    "stall_timeout_s": LONGEST_S,
    "request_timeout_s": LONGEST_S,
    "patience_s": LONGEST_S,
    "backoff_first_s": 0.005,
    "backoff_cap_s": 0.02,
}
"""Pauses take little real time. What gives up does so after long; a test that is about it sets less."""


class Log:
    """Keeps what is noted."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []

    def info(self, event: str, **values: Any) -> None:
        self.lines.append((event, values))

    def warning(self, event: str, **values: Any) -> None:
        self.lines.append((event, values))


@dataclass
class Harm:
    """What a proxy does to a connection, in one direction or both.

    Attributes:
        slice_bytes: Bytes are passed on in pieces of this length.
        latency_s: And each piece so much later.
        bytes_per_s: And no faster.
        reset_after: After so many bytes, upwards, the connection is reset; then once only.
        reset_every: All connections are reset each time that so many bytes have passed, either way.
        stall_after: After so many bytes, upwards, nothing moves any more.
        stall_down_after: The same, downwards.
        repeat_up: So many of the next requests with small replies reach the server twice.
        repeat_down: So many of the next outboxes begin with the first dispatch again.
    """

    slice_bytes: int = 1 << 16
    latency_s: float = 0.0
    bytes_per_s: float = 0.0
    reset_after: int | None = None
    reset_every: int = 0
    stall_after: int | None = None
    stall_down_after: int | None = None
    repeat_up: int = 0
    repeat_down: int = 0


@dataclass
class Proxy:
    """A TCP proxy; counts what it passes on."""

    target: int
    harm: Harm = field(default_factory=Harm)
    up: int = 0
    down: int = 0
    accepted: int = 0
    port: int = 0
    repeated_up: int = 0
    repeated_down: int = 0
    _since_reset: int = 0
    _is_closed: bool = False
    _open: asyncio.Event = field(default_factory=asyncio.Event)
    _server: asyncio.Server | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def start(self) -> Proxy:
        self._open.set()
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def swallow(self, everything: bool) -> None:
        """Let nothing through from now on, or everything again."""
        if everything:
            self._open.clear()
        else:
            self._open.set()

    def reset_all(self) -> None:
        """Reset every connection."""
        for writer in self._writers:
            self._reset(writer)
        self._writers.clear()

    async def close(self) -> None:
        self._is_closed = True
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_closed:  # it was accepted just before
            self._reset(writer)
            return
        self.accepted += 1
        task = asyncio.get_running_loop().create_task(self._pass_on(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = [writer]
        try:
            there, away = await asyncio.open_connection("127.0.0.1", self.target)
            ends.append(away)
            self._writers += ends
            with suppress(OSError):
                await asyncio.gather(self._pump(reader, away, True), self._pump(there, writer, False))
            for end in ends:
                end.close()
                with suppress(OSError):
                    await end.wait_closed()
        except OSError:
            pass  # nobody is there
        finally:
            for end in ends:
                if not end.is_closing():  # it was cancelled
                    self._reset(end)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, up: bool) -> None:
        harm = self.harm
        while data := await reader.read(harm.slice_bytes):
            await self._open.wait()
            if harm.latency_s or harm.bytes_per_s:
                pause_s = len(data) / harm.bytes_per_s if harm.bytes_per_s else 0.0
                await asyncio.sleep(harm.latency_s + pause_s)
            if up:
                self.up += len(data)
                if harm.reset_after is not None and self.up >= harm.reset_after:
                    harm.reset_after = None
                    self.reset_all()
                    return
                if harm.stall_after is not None and self.up >= harm.stall_after:
                    harm.stall_after = None
                    await asyncio.sleep(60)
            else:
                self.down += len(data)
                if harm.stall_down_after is not None and self.down >= harm.stall_down_after:
                    harm.stall_down_after = None
                    await asyncio.sleep(60)
            if up:
                data = await self._repeated(data)
            self._since_reset += len(data)
            if harm.reset_every and self._since_reset >= harm.reset_every:
                self._since_reset = 0
                self.reset_all()
                return
            writer.write(data)
            await writer.drain()
            await asyncio.sleep(0)  # a stream's read does not wait where it has something: let others run
        await self._open.wait()
        with suppress(OSError):
            writer.write_eof()

    async def _repeated(self, data: bytes) -> bytes:
        if data.startswith(b"POST /replies") and self.harm.repeat_up and len(data) < self.harm.slice_bytes:
            self.harm.repeat_up -= 1
            self.repeated_up += 1
            reader, writer = await asyncio.open_connection("127.0.0.1", self.target)
            try:
                writer.write(data)
                await reader.readline()  # it has been answered before the first copy comes
            finally:
                writer.transport.abort()
        if data.startswith(b"GET /outbox") and self.harm.repeat_down:
            self.harm.repeat_down -= 1
            self.repeated_down += 1
            return re.sub(rb"after=\d+", b"after=0", data)
        return data

    @staticmethod
    def _reset(writer: asyncio.StreamWriter) -> None:
        sock = writer.get_extra_info("socket")
        if sock is not None and sock.fileno() >= 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()


async def until(condition: Callable[[], Any]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(LONGEST_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.002)


async def within(awaitable: Any, seconds: float = LONGEST_S) -> Any:
    """Wait for something, but not for ever."""
    async with asyncio.timeout(seconds):
        return await awaitable


@dataclass
class World:
    """A server and whoever joins it; closed at the end of a test, with nothing left over."""

    server: HttpServer
    ledger: Ledger
    trace: Trace
    log: Log
    port: int
    limits: HttpLimits
    scheme: str = "http"
    _ends: list[Callable[[], Awaitable[None]]] = field(default_factory=list)
    kinds: Kinds = field(default_factory=lambda: Kinds(COMMON))

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def client(self, clients: str = "0-9", url: str | None = None, **options: Any) -> HttpClient:
        options = {"kinds": self.kinds, "limits": self.limits, **options}
        made = HttpClient(url or self.url, clients=ClientRanges.parse(clients), **options)
        self._ends.append(lambda: made.close(0.2))
        return made

    async def join(self, clients: str = "0-9", url: str | None = None, **options: Any) -> HttpClient:
        made = self.client(clients, url, **options)
        await made.connect()
        return made

    async def proxy(self, harm: Harm | None = None, **of_harm: Any) -> Proxy:
        made = await Proxy(self.port, harm or Harm(**of_harm)).start()
        self._ends.append(made.close)
        return made

    until = staticmethod(until)
    within = staticmethod(within)

    @staticmethod
    def model(num: int, value: float = 0.0) -> Model:
        return Model("mlp", {"w": np.full(num, value, np.float32)}, {})

    @staticmethod
    def down(client: int, dispatch: int = 0) -> Header:
        return Header(-1, client, 1, "train", dispatch, dispatch)

    def ask(self, client: int, dispatch: int = 0, num: int = 10) -> Awaitable[None]:
        return self.server.send(
            self.down(client, dispatch), ModelBroadcast.of(self.model(num, client + dispatch / 8))
        )

    @staticmethod
    def reply(client: HttpClient, delivery: Delivery) -> Awaitable[None]:
        """Reply with the model that came."""
        assert isinstance(delivery.message, ModelBroadcast)
        return client.send(delivery.header.reply(), ModelUpdate.of(delivery.message.model, num_samples=1))

    async def close(self) -> None:
        for end in reversed(self._ends):
            await end()
        await self.server.close(0.2)


async def new_world(
    *,
    access: Access | None = None,
    num_clients: int = 10,
    greeting: bytes = b"the scenario",
    kinds: Kinds | None = None,
    encrypt: tls.SSLContext | None = None,
    **limits: Any,
) -> World:
    """Start a server; whoever asks for it closes it."""
    ledger, trace, log = Ledger(), Trace(keep=True), Log()
    options = HttpLimits(**{**QUICK, **limits})
    server = HttpServer(
        kinds=kinds or Kinds(COMMON),
        ledger=ledger,
        trace=trace,
        access=access or Access.open(),
        limits=options,
        greeting=greeting,
        num_clients=num_clients,
        log=log,
    )
    port = await server.start("127.0.0.1", 0, encrypt)
    return World(server, ledger, trace, log, port, options, "http" if encrypt is None else "https")


@pytest.fixture
def unmanaged_world() -> Callable[..., Awaitable[World]]:
    """For a test with loops of its own, which closes what it makes."""
    return new_world


@pytest.fixture
async def make_world() -> AsyncIterator[Callable[..., Awaitable[World]]]:
    made: list[World] = []

    async def make(**options: Any) -> World:
        made.append(await new_world(**options))
        return made[-1]

    before = asyncio.all_tasks()
    yield make
    for world in made:
        async with asyncio.timeout(LONGEST_S):
            await world.close()

    def left() -> set[asyncio.Task[Any]]:
        return asyncio.all_tasks() - before - {asyncio.current_task()}

    with suppress(TimeoutError):
        await until(lambda: not left())
    assert not left(), f"tasks are left behind: {left()}"
    for world in made:
        world.ledger.check()
        assert world.server.rejected["fault"] == 0, world.log.lines
