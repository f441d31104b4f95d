"""The HTTP bus on loopback, against a bare aiohttp echo in the same process.

- Small exchanges: a frame of about 200 bytes down and one up, 16 under way, against requests of that length.
- Model frames of 6.65 MB: down and up, 4 under way, against requests of that length.
- A crowd: ``fedsim run --bus http --processes 2`` with 10,000 clients that train nothing, 1,000 a round.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np
from aiohttp import ClientSession, TCPConnector, web
from bench_harness import Bench, main, without_training

from fedsim import toml_writer
from fedsim.bus import Delivery, Header, Ledger
from fedsim.bus.http.access import Access, ClientRanges
from fedsim.bus.http.client import HttpClient
from fedsim.bus.http.server import HttpServer
from fedsim.clock import Trace
from fedsim.params import Model
from fedsim.runtime.records.recorder import silent
from fedsim.wire import COMMON, Kinds, ModelBroadcast, ModelUpdate, Packed, pack

SMALL, LARGE = 10, 1_662_000  # numbers of a model
MIN_RATIO, MAX_ROUND_S = 0.5, 20.0
CROWD, ASKED, ROUNDS = 10_000, 1_000, 3


def broadcast(size: int) -> ModelBroadcast:
    """Return a model of so many numbers."""
    return ModelBroadcast.of(Model("mlp", {"w": np.ones(size, np.float32)}, {}))


class Bus:
    """A server and a client process that answers everything with a frame of the same length."""

    def __init__(self) -> None:
        self.server = HttpServer(
            kinds=Kinds(COMMON),
            ledger=Ledger(),
            trace=Trace(),
            access=Access.open(),
            greeting=b"",
            num_clients=100,
            log=silent(),
        )
        self._dispatches = 0
        self._replies: dict[int, Packed] = {}
        self._inbox = asyncio.Queue[Delivery]()
        self.server.feed(self._inbox.put_nowait)

    async def join(self, port: int) -> None:
        """Let the client process join and answer."""
        address, clients = f"http://127.0.0.1:{port}", ClientRanges.parse("0-99")
        self.client = HttpClient(address, clients=clients)
        self.client.feed(self._answer, Kinds(COMMON))
        await self.client.connect()
        await self.server.wait_for_clients(range(100))

    def _answer(self, delivery: Delivery) -> None:
        assert isinstance(delivery.message, ModelBroadcast)
        size = delivery.message.params["w"].size
        if size not in self._replies:
            self._replies[size] = pack(ModelUpdate.of(delivery.message.model, num_samples=1))
        self.client.send(delivery.header.reply(), self._replies[size])

    async def exchanges_s(self, count: int, under_way: int, size: int) -> float:
        """Return the time of so many exchanges, s."""
        packed = pack(broadcast(size))
        started = perf_counter()
        sent = 0
        for done in range(count):
            while sent < count and sent - done < under_way:
                self._dispatches += 1
                self.server.send(Header(-1, sent % 100, 1, "train", self._dispatches, 0), packed)
                sent += 1
            await self._inbox.get()
        return perf_counter() - started

    async def close(self) -> None:
        """Close both sides."""
        await self.client.close()
        await self.server.close()


async def echo_server() -> tuple[web.AppRunner, str]:
    """Start a server that answers a request with its body; return it with its address."""

    async def echo(request: web.Request) -> web.Response:
        return web.Response(body=await request.read())

    app = web.Application(client_max_size=1 << 30)
    app.add_routes([web.post("/", echo)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}/"


async def echoes_s(http: ClientSession, url: str, count: int, under_way: int, data: bytes) -> float:
    """Return the time of so many echoes of a request, s."""

    async def echo() -> None:
        async with slots, http.post(url, data=data) as response:
            assert len(await response.read()) == len(data)

    slots = asyncio.Semaphore(under_way)
    started = perf_counter()
    await asyncio.gather(*(echo() for _ in range(count)))
    return perf_counter() - started


def show_rates(bench: Bench, loop: asyncio.Runner) -> None:
    """Show the rate of exchanges in proportion to that of echoes."""
    runner, url = loop.run(echo_server())
    http, bus = loop.run(_clients())

    def run(coroutine: Callable[..., Coroutine[Any, Any, float]], *arguments: Any) -> float:
        return loop.run(coroutine(*arguments))

    small = len(pack(broadcast(SMALL)).frame(sender=-1, receiver=3, round=1, exchange="train"))
    kinds = (
        ("small exchanges", bench.options.exchanges, 16, SMALL, small),
        ("model frames", max(4, bench.options.exchanges // 125), 4, LARGE, 4 * LARGE),
    )
    for name, count, under_way, size, num_bytes in kinds:
        data = bytes(num_bytes)
        loop.run(bus.exchanges_s(count // 4, under_way, size))
        times = bench.in_turns(
            {
                "bus": partial(run, bus.exchanges_s, count, under_way, size),
                "echo": partial(run, echoes_s, http, url, count, under_way, data),
            }
        )
        bench.show(name, [count / each for each in times["bus"]], "/s")
        bench.ratio(f"{name}, bus / echo", times["echo"], times["bus"], at_least=MIN_RATIO)
    for end in (http.close(), bus.close(), runner.cleanup()):
        loop.run(end)


async def _clients() -> tuple[ClientSession, Bus]:
    bus = Bus()
    await bus.join(await bus.server.start("127.0.0.1", 0))
    return ClientSession(connector=TCPConnector(limit=16)), bus


def show_crowd(bench: Bench) -> None:
    """Show the time of a round of a run over sockets; all clients that are asked have to be merged."""
    tables = without_training(CROWD, ROUNDS, ASKED)
    with TemporaryDirectory() as folder:
        scenario, out = Path(folder, "crowd.toml"), Path(folder, "out")
        scenario.write_text(toml_writer.document(tables))
        command = [sys.executable, "-m", "fedsim", "run", str(scenario), "--out", str(out), "--quiet"]
        subprocess.run([*command, "--bus", "http", "--processes", "2"], check=True, stdout=subprocess.DEVNULL)
        summary = json.loads((out / "summary.json").read_text())
    bench.show("crowd: merged", summary["participation"]["merged"], "clients", at_least=ROUNDS * ASKED)
    bench.show("crowd: a round", summary["simulated_s"] / ROUNDS, "s", at_most=MAX_ROUND_S)


def measure(bench: Bench) -> None:
    """Measure rates and the crowd."""
    with asyncio.Runner() as loop:
        show_rates(bench, loop)
    show_crowd(bench)


if __name__ == "__main__":
    main(__doc__, measure, exchanges={"type": int, "default": 3000, "help": "small ones of a measurement"})
