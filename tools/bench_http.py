"""The aiohttp bus on loopback, beside a bare aiohttp echo in the same process.

The echo is an aiohttp server that answers a POST request with its body, for an aiohttp client.

- Small exchanges: a frame of about 200 bytes down and one up, 16 under way, against requests of the same
  length, 16 under way. At least half of the rate. Two echoes over a WebSocket are printed for comparison:
  one that looks at nothing, where aiohttp's C code handles many messages in one go, and one that makes and
  decodes the frames at both ends, which alone takes longer.
- Model frames of 6.65 MB: down and up, 4 under way, against requests of that length. At least half of the
  bytes per second.
- Bytes through a counting proxy, both ways: payload and modelled overhead (``protocol = "bus"``), within 1 %.

::

    python tools/bench_http.py [--check]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable
from statistics import median
from time import perf_counter
from typing import Literal

import numpy as np
from aiohttp import ClientSession, TCPConnector, WSMsgType, web

from fedsim.bus import Header, Ledger
from fedsim.bus.http.access import Access, ClientRanges
from fedsim.bus.http.client import HttpClient
from fedsim.bus.http.server import HttpServer
from fedsim.clock import Trace
from fedsim.network import OverheadConfig
from fedsim.params import Model
from fedsim.runtime.records.recorder import silent
from fedsim.wire import COMMON, Kinds, ModelBroadcast, ModelUpdate, Packed, decode, pack

SMALL, SMALL_UNDER_WAY = 10, 16
LARGE, LARGE_UNDER_WAY = 1_662_000, 4
LEAST_RATIO = 0.5
MOST_ERROR = 0.01
KINDS = Kinds(COMMON)


class Streams(OverheadConfig):
    """What the bus adds within its TCP connections, as a proxy sees it."""

    def wire_bytes(self, payload_bytes: int, direction: Literal["up", "down"], sharing: int = 1) -> int:
        """Return the bytes that a message takes."""
        return self.stream_bytes(payload_bytes, direction, sharing)


BUS = Streams(protocol="bus")
MODEL = Model("mlp", {"w": np.ones(SMALL, np.float32)}, {})
BROADCAST, REPLY = pack(ModelBroadcast.of(MODEL)), pack(ModelUpdate.of(MODEL, num_samples=1))
Make = Callable[[], bytes]
Take = Callable[[bytes], object]


def make_frame(packed: Packed, sender: int, receiver: int) -> bytes:
    """Return a frame as any bus makes it."""
    return packed.frame(sender=sender, receiver=receiver, round=1, exchange="train").join()


def take_frame(data: bytes) -> object:
    """Read a frame as any bus reads it."""
    return decode(data, KINDS)


class Bus:
    """A server and one client process that answers everything with a frame of the same length."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.server = HttpServer(
            kinds=KINDS,
            ledger=self.ledger,
            trace=Trace(),
            overhead=BUS,
            access=Access.open(),
            greeting=b"",
            num_clients=100,
            log=silent(),
        )
        self._dispatches = 0

    async def start(self) -> int:
        """Listen and return the port."""
        return await self.server.start("127.0.0.1", 0)

    async def join(self, port: int) -> None:
        """Let the client process join and answer."""
        clients = ClientRanges.parse("0-99")
        self.client = HttpClient(f"http://127.0.0.1:{port}", clients=clients, kinds=KINDS)
        await self.client.connect()
        await self.server.attendance(range(100))
        self._answering = asyncio.ensure_future(self._answer())

    async def _answer(self) -> None:
        replies: dict[int, Packed] = {}
        while True:
            delivery = await self.client.receive()
            assert isinstance(delivery.message, ModelBroadcast)
            num = delivery.message.params["w"].size
            if num not in replies:
                replies[num] = pack(ModelUpdate.of(delivery.message.model, num_samples=1))
            self.client.send(delivery.header.reply(), replies[num])

    async def exchanges(self, count: int, under_way: int, num: int) -> float:
        """Hold exchanges, so many at a time; return the seconds they took."""
        packed = pack(ModelBroadcast.of(Model("mlp", {"w": np.ones(num, np.float32)}, {})))
        began = perf_counter()
        sent = 0
        for done in range(count):
            while sent < count and sent - done < under_way:
                self._dispatches += 1
                self.server.send(Header(-1, sent % 100, 1, "train", self._dispatches, 0), packed)
                sent += 1
            await self.server.receive()
        return perf_counter() - began

    async def close(self) -> None:
        """End everything."""
        self._answering.cancel()
        await self.client.close()
        await self.server.close()


async def echo_app() -> tuple[web.AppRunner, str]:
    """Serve bare echoes; return what to clean up, and the address."""

    async def ws(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(compress=False, max_msg_size=0)
        await socket.prepare(request)
        async for message in socket:
            await socket.send_bytes(message.data)
        return socket

    async def frames(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(compress=False, max_msg_size=0)
        await socket.prepare(request)
        async for message in socket:
            take_frame(message.data)
            await socket.send_bytes(make_frame(REPLY, 3, -1))
        return socket

    async def post(request: web.Request) -> web.Response:
        return web.Response(body=await request.read())

    app = web.Application(client_max_size=1 << 30)
    app.add_routes([web.get("/ws", ws), web.get("/frames", frames), web.post("/post", post)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}"


async def echo_small(http: ClientSession, url: str, count: int, make: Make, take: Take) -> float:
    """Return the seconds that so many echoes of a WebSocket message take, several under way."""
    async with http.ws_connect(url, max_msg_size=0) as socket:
        began = perf_counter()
        sent = 0
        for done in range(count):
            while sent < count and sent - done < SMALL_UNDER_WAY:
                await socket.send_bytes(make())
                sent += 1
            message = await socket.receive()
            assert message.type is WSMsgType.BINARY
            take(message.data)
        return perf_counter() - began


async def echo_posts(http: ClientSession, url: str, count: int, data: bytes, under_way: int) -> float:
    """Return the seconds that so many echoes of a request's body take, several under way."""

    async def one() -> None:
        async with slots, http.post(f"{url}/post", data=data) as response:
            assert len(await response.read()) == len(data)

    slots = asyncio.Semaphore(under_way)
    began = perf_counter()
    await asyncio.gather(*(one() for _ in range(count)))
    return perf_counter() - began


async def beside(
    mine: Callable[[], Awaitable[float]], its: Callable[[], Awaitable[float]], repeats: int = 5
) -> tuple[float, float, float]:
    """Return the medians of my seconds, of its seconds, and of the ratios of neighbours in time."""
    pairs = [(await mine(), await its()) for _ in range(repeats)]
    return median(a for a, _ in pairs), median(b for _, b in pairs), median(b / a for a, b in pairs)


class Counting:
    """A TCP proxy that counts."""

    def __init__(self, target: int) -> None:
        self.num_bytes = 0
        self._target = target
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> int:
        """Listen and return the port."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.append(asyncio.ensure_future(self._pass_on(reader, writer)))

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, away = await asyncio.open_connection("127.0.0.1", self._target)
        await asyncio.gather(self._pump(reader, away), self._pump(there, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            self.num_bytes += len(data)
            writer.write(data)
            await writer.drain()
        writer.close()

    async def close(self) -> None:
        """End everything."""
        self._server.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def throughput(quick: bool) -> list[tuple[str, float]]:
    """Print rates and return the ratios."""
    bus = Bus()
    await bus.join(await bus.start())
    runner, url = await echo_app()
    small = make_frame(REPLY, 3, -1)
    large = bytes(4 * LARGE)
    count, large_count = (500, 8) if quick else (3000, 24)
    ratios = []
    async with ClientSession(connector=TCPConnector(limit=SMALL_UNDER_WAY)) as http:
        await bus.exchanges(count // 5, SMALL_UNDER_WAY, SMALL)
        await echo_posts(http, url, count // 5, small, SMALL_UNDER_WAY)
        mine_s, its_s, ratio = await beside(
            lambda: bus.exchanges(count, SMALL_UNDER_WAY, SMALL),
            lambda: echo_posts(http, url, count, small, SMALL_UNDER_WAY),
        )
        bare_s = median([await echo_small(http, f"{url}/ws", count, lambda: small, len) for _ in range(3)])
        framed_s = median(
            [
                await echo_small(
                    http, f"{url}/frames", count, lambda: make_frame(BROADCAST, -1, 3), take_frame
                )
                for _ in range(3)
            ]
        )
        print(
            f"small exchanges of 2 x {len(small)} bytes: {count / mine_s:,.0f}/s, echo "
            f"{count / its_s:,.0f}/s; over a WebSocket {count / bare_s:,.0f}/s, with frames made and decoded "
            f"{count / framed_s:,.0f}/s"
        )
        ratios.append(("small exchanges, in the echo's rate", ratio))
        mine_s, its_s, ratio = await beside(
            lambda: bus.exchanges(large_count, LARGE_UNDER_WAY, LARGE),
            lambda: echo_posts(http, url, large_count, large, LARGE_UNDER_WAY),
        )
        volume = 2 * large_count * len(large) / 1e6
        print(f"model frames of 6.65 MB: {volume / mine_s:,.0f} MB/s, echo {volume / its_s:,.0f} MB/s")
        ratios.append(("model frames, in the echo's bytes per second", ratio))
    await bus.close()
    await runner.cleanup()
    return ratios


async def accounted(name: str, count: int, num: int) -> tuple[str, float]:
    """Print and return how far the bytes on the wire are from the model, as a share."""
    bus = Bus()
    proxy = Counting(await bus.start())
    await bus.join(await proxy.start())
    await asyncio.sleep(0.1)
    before = proxy.num_bytes
    await bus.exchanges(count, 8, num)
    await asyncio.sleep(0.1)
    columns = bus.ledger.columns()
    payload = int(columns["bytes"].sum())
    modelled = payload + int(columns["overhead"].sum())
    seen = proxy.num_bytes - before
    await bus.close()
    await proxy.close()
    print(f"{name}: payload {payload:,} bytes, modelled {modelled:,}, through the proxy {seen:,}")
    return f"{name}: error of the model", abs(seen / modelled - 1)


async def measure(quick: bool) -> bool:
    """Print all figures and say whether they are as they must be."""
    fine = True
    for name, ratio in await throughput(quick):
        verdict = "ok" if ratio >= LEAST_RATIO else "TOO SLOW"
        fine &= ratio >= LEAST_RATIO
        print(f"  {name:50} {ratio:6.2f} of at least {LEAST_RATIO}: {verdict}")
    for what, count, num in (
        ("small frames", 400, SMALL),
        ("frames of 40 kB", 100, 10_000),
        ("frames of 80 kB", 60, 20_000),
        ("model frames", 4, LARGE),
    ):
        name, error = await accounted(what, count, num)
        verdict = "ok" if error <= MOST_ERROR else "OFF"
        fine &= error <= MOST_ERROR
        print(f"  {name:50} {error:6.2%} of at most {MOST_ERROR:.0%}: {verdict}")
    return fine


def main() -> int:
    """Print all figures and return the exit status."""
    parser = argparse.ArgumentParser(description="Measure the aiohttp bus beside a bare aiohttp echo.")
    parser.add_argument("--check", action="store_true", help="exit with status 1 where a limit is missed")
    parser.add_argument("--quick", action="store_true", help="fewer exchanges")
    arguments = parser.parse_args()
    return int(not asyncio.run(measure(arguments.quick)) and arguments.check)


if __name__ == "__main__":
    sys.exit(main())
