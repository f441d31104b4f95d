"""A flood: the memory that client processes, honest and hostile, can make a server hold.

The server runs in a process of its own and does not read. Another process floods it over many sessions:

- honest clients reply to every dispatch, with small and with large frames;
- hostile ones leave large replies unfinished, fetch frames without reading them, and send replies that
  nobody asked for, as large as allowed;
- strangers begin a request and never end it.

The bytes that the server accounts for and the growth of its memory are compared with the bounds that
``fedsim/bus/http/server.py`` states. The limits are small, so that the flood is quick. Afterwards an honest
client has to be served.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import aiohttp
from bench_harness import Bench, main
from bench_http import broadcast, server_of

from fedsim.bus import Header, Ledger
from fedsim.bus.http.access import ClientRanges
from fedsim.bus.http.client import HttpClient
from fedsim.bus.http.limits import KIB, MIB, HttpLimits
from fedsim.bus.http.messages import PROTOCOL, entry
from fedsim.wire import COMMON, DEFAULT, Kinds, ModelBroadcast, ModelUpdate, pack

LIMITS = HttpLimits(
    frame=replace(DEFAULT, frame_bytes=4 * MIB),
    max_sessions=40,
    max_connections=120,
    max_handshakes=40,
    upload_bytes=48 * MIB,
    session_upload_bytes=16 * MIB,
    inbox_bytes=32 * MIB,
    stall_timeout_s=60.0,
    handshake_timeout_s=30.0,
)
PER_CONNECTION = 2 * MIB
HONEST, HOSTILE, ROUNDS = 8, 16, 30
LARGE, SMALL = 900_000, 12_000  # floats: 3.6 MB and 48 kB
SETTLED_S = 1.0


def bound() -> int:
    """Return the most bytes that peers can make the server hold, as its docstring states."""
    connections = LIMITS.max_connections * (PER_CONNECTION + LIMITS.batch_bytes)
    return int(connections + LIMITS.upload_bytes + LIMITS.inbox_bytes + LIMITS.batch_bytes)


def resident() -> int:
    """Return this process's resident bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4 * KIB


async def serve() -> None:
    """Ask all clients for more than is read, and report the highest memory."""
    clients = HONEST + HOSTILE
    server = server_of(clients + 1, Ledger(), limits=LIMITS)
    report(await server.start("127.0.0.1", 0))
    await server.attendance(range(clients))
    packed = {num: pack(broadcast(num)) for num in (LARGE, SMALL)}
    asked = 0
    for dispatch in range(ROUNDS):
        for client in range(clients):
            num = LARGE if (dispatch + client) % 3 == 0 else SMALL
            server.send(Header(-1, client, 1, "train", dispatch, dispatch), packed[num])
            asked += 1
    before, highest, accounted = resident(), 0, 0
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    end_of_flood = asyncio.ensure_future(lines.readline())
    while not end_of_flood.done():
        await asyncio.sleep(0.01)
        held = sum(session.upload_bytes for session in server._sessions)
        accounted = max(accounted, server._inbox.num_bytes + held)
        highest = max(highest, resident() - before)
    # Now the server reads again, and serves a client that was not part of the flood.
    received = 0
    with suppress(TimeoutError):
        while True:
            async with asyncio.timeout(SETTLED_S):
                await server.receive()
            received += 1
    await server.attendance([clients])
    server.send(Header(-1, clients, 1, "train", 0, 0), packed[LARGE])
    async with asyncio.timeout(20):
        while (await server.receive()).header.sender != clients:
            received += 1
    report(accounted, highest, received, asked, dict(server.rejected))
    await server.close(0.1)


def report(*values: object) -> None:
    """Write a line to the process that floods."""
    print(*values, sep="\t", flush=True)


async def honest(port: int, client: int) -> None:
    """Answer every dispatch."""
    process = HttpClient(
        f"http://127.0.0.1:{port}",
        clients=ClientRanges.parse(str(client)),
        kinds=Kinds(COMMON),
        limits=replace(LIMITS, backoff_first_s=0.05, backoff_cap_s=0.2, inbox_bytes=1 << 30),
    )
    try:
        await process.connect()
        while True:
            delivery = await process.receive()
            assert isinstance(delivery.message, ModelBroadcast)
            process.send(delivery.header.reply(), ModelUpdate.of(delivery.message.model, num_samples=1))
    except ConnectionError:
        pass
    finally:
        await process.close(0)


async def hostile(port: int, client: int) -> None:
    """Leave large replies unfinished, fetch frames without reading them, and send unasked replies."""
    url, name = f"http://127.0.0.1:{port}", f"{client:032x}"
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(headers={"Fedsim-Session": name}, connector=connector) as http:
        hello = json.dumps({"protocol": PROTOCOL, "clients": str(client)})
        async with http.post(f"{url}/join", data=hello), http.get(f"{url}/outbox?after=0&ready=1"):
            await asyncio.sleep(1)
            fetching = [await fetch(port, name, f"{client}/{number}") for number in range(2)]
            assert len(fetching) == 2
            uploading = [await begin_upload(port, name, f"{client}/{number}") for number in range(8)]
            assert len(uploading) == 8
            unasked = entry("r", client, 999, (0.0, 0.0), None, body=bytes(LIMITS.small_frame_bytes))
            while True:
                with suppress(aiohttp.ClientError):
                    async with http.post(f"{url}/replies?had=0&ready=1", data=unasked * 3):
                        pass
                await asyncio.sleep(0.05)


async def fetch(port: int, name: str, dispatch: str) -> asyncio.StreamWriter:
    """Request a frame; do not read it."""
    _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
    request = f"GET /dispatch/{dispatch} HTTP/1.1\r\nHost: localhost\r\nFedsim-Session: {name}\r\n\r\n"
    writer.write(request.encode())
    return writer


async def begin_upload(port: int, name: str, dispatch: str) -> asyncio.StreamWriter:
    """Send a large reply but for its last bytes."""
    _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
    total = LIMITS.frame.frame_bytes
    request = f"PUT /dispatch/{dispatch} HTTP/1.1\r\nHost: localhost\r\nFedsim-Session: {name}\r\n"
    writer.write(f"{request}Content-Length: {total}\r\n\r\n".encode() + bytes(total - 100))
    return writer


async def stranger(port: int) -> None:
    """Send a request without end; connect again when disconnected."""
    while True:
        with suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(b"GET /outbox HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
                while True:
                    writer.write(b"x" * 512)
                    await writer.drain()
                    await asyncio.sleep(0.1)
            finally:
                writer.transport.abort()


async def flooded(seconds: float) -> list[str]:
    """Flood a server for so long; return what it says at the end."""
    pipe = asyncio.subprocess.PIPE
    server = await asyncio.create_subprocess_exec(
        sys.executable, __file__, "--serve", stdin=pipe, stdout=pipe
    )
    assert server.stdin is not None
    assert server.stdout is not None
    port = int(await server.stdout.readline())
    tasks = [asyncio.ensure_future(honest(port, client)) for client in range(HONEST)]
    tasks += [asyncio.ensure_future(hostile(port, HONEST + place)) for place in range(HOSTILE)]
    await asyncio.sleep(seconds / 4)
    tasks += [asyncio.ensure_future(stranger(port)) for _ in range(2 * LIMITS.max_handshakes)]
    await asyncio.sleep(seconds)
    server.stdin.write(b"enough\n")
    tasks.append(asyncio.ensure_future(honest(port, HONEST + HOSTILE)))
    report = (await server.stdout.readline()).decode().strip().split("\t")
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    server.stdin.close()
    status = await server.wait()
    if len(report) != 5 or status:
        raise SystemExit(f"the server has ended with status {status}: {report}")
    return report


def measure(bench: Bench) -> None:
    """Flood; show what the server held."""
    accounted, growth, received, asked, rejected = asyncio.run(flooded(bench.options.seconds))
    print(f"replies received afterwards: {received} of {asked}; rejected: {rejected}")
    most = LIMITS.inbox_bytes + LIMITS.batch_bytes + LIMITS.upload_bytes
    bench.show("inbox and uploads, at most", int(accounted) / MIB, "MiB", at_most=most / MIB)
    bench.show("growth of the memory, at most", int(growth) / MIB, "MiB", at_most=bound() / MIB)
    bench.show("faults of the server", rejected.count("'fault'"), "", at_most=0)


if __name__ == "__main__":
    if sys.argv[1:] == ["--serve"]:
        asyncio.run(serve())
    else:
        main(__doc__, measure, repeats=1, seconds={"type": float, "default": 6.0, "help": "of the flood"})
