"""A flood: what client processes, honest and hostile, can make a server hold whose actor does not read.

The server runs by itself in a process; another floods it, all at once, over many sessions:

- honest processes reply to what they were asked, small frames and large ones, while nobody receives;
- hostile ones leave large replies half sent, fetch frames and do not read them, and send what nobody asked
  for, as much at a time as allowed;
- strangers begin a request and never end it.

Printed are the bytes that the server accounts for, and by how much its resident memory has grown, at their
highest, beside the bound that ``fedsim/bus/http/server.py`` states, for limits as small as can be flooded
quickly. Afterwards an honest process must be served as ever. ::

    python tools/flood_http.py [--check]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import aiohttp
import numpy as np

from fedsim.bus import Header, Ledger
from fedsim.bus.http.access import Access, ClientRanges
from fedsim.bus.http.client import HttpClient
from fedsim.bus.http.limits import KIB, MIB, HttpLimits
from fedsim.bus.http.messages import PROTOCOL, entry
from fedsim.bus.http.server import HttpServer
from fedsim.clock import Trace
from fedsim.params import Model
from fedsim.runtime.records.recorder import silent
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
    """Return the most that peers can make the server hold, as its docstring states it."""
    connections = LIMITS.max_connections * (PER_CONNECTION + LIMITS.batch_bytes)
    return int(connections + LIMITS.upload_bytes + LIMITS.inbox_bytes + LIMITS.batch_bytes)


def resident() -> int:
    """Return this process's resident bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4 * KIB


def broadcast(num: int) -> ModelBroadcast:
    """Return a message of so many numbers."""
    return ModelBroadcast.of(Model("mlp", {"w": np.ones(num, np.float32)}, {}))


async def serve() -> None:
    """Be the server: ask everybody for more than it reads, and write down what it holds."""
    clients = HONEST + HOSTILE
    server = HttpServer(
        kinds=Kinds(COMMON),
        ledger=Ledger(),
        trace=Trace(),
        access=Access.open(),
        limits=LIMITS,
        greeting=b"",
        num_clients=clients + 1,
        log=silent(),
    )
    say(await server.start("127.0.0.1", 0))
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
    told = asyncio.ensure_future(lines.readline())
    while not told.done():  # the flood goes on
        await asyncio.sleep(0.01)
        held = sum(session.upload_bytes for session in server._sessions)
        accounted = max(accounted, server._inbox.num_bytes + held)
        highest = max(highest, resident() - before)
    # Now somebody reads again, and a process that was not part of it is served.
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
    say(accounted, highest, received, asked, dict(server.rejected))
    await server.close(0.1)


def say(*values: object) -> None:
    """Tell the process that floods."""
    print(*values, sep="\t", flush=True)


async def honest(port: int, client: int) -> None:
    """Answer everything."""
    made = HttpClient(
        f"http://127.0.0.1:{port}",
        clients=ClientRanges.parse(str(client)),
        kinds=Kinds(COMMON),
        limits=replace(LIMITS, backoff_first_s=0.05, backoff_cap_s=0.2, inbox_bytes=1 << 30),
    )
    try:
        await made.connect()
        while True:
            delivery = await made.receive()
            assert isinstance(delivery.message, ModelBroadcast)
            made.send(delivery.header.reply(), ModelUpdate.of(delivery.message.model, num_samples=1))
    except ConnectionError:
        pass
    finally:
        await made.close(0)


async def hostile(port: int, client: int) -> None:
    """Leave large replies half sent, fetch frames without reading them, and send what nobody asked for."""
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
    """Ask for a frame and read nothing of it."""
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
    """Begin a request, go on for ever, and come back when turned out."""
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


async def flood(seconds: float) -> bool:
    """Flood a server for so long; print what it held, and say whether that is within bounds."""
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
    late = asyncio.ensure_future(honest(port, HONEST + HOSTILE))
    said = (await server.stdout.readline()).decode().strip().split("\t")
    for task in [*tasks, late]:
        task.cancel()
    await asyncio.gather(*tasks, late, return_exceptions=True)
    server.stdin.close()
    status = await server.wait()
    if len(said) != 5 or status:
        print(f"the server has ended with status {status}: {said}")
        return False
    accounted, grown, limit = int(said[0]), int(said[1]), bound()
    most = LIMITS.inbox_bytes + LIMITS.batch_bytes + LIMITS.upload_bytes
    print(f"flood of a server that does not read: afterwards it received {said[2]} answers of {said[3]}")
    print(f"  turned away: {said[4]}")
    fine = accounted <= most and grown <= limit and "'fault'" not in said[4]
    print(f"  held in its inbox and of uploads, at most {accounted / MIB:6.1f} MiB of {most / MIB:.0f}")
    print(f"  growth of its resident memory, at most   {grown / MIB:6.1f} MiB of {limit / MIB:.0f}")
    return fine


def main() -> int:
    """Flood; return the exit status."""
    parser = argparse.ArgumentParser(description="Flood a server of the aiohttp bus.")
    parser.add_argument("--check", action="store_true", help="exit with status 1 where a bound is exceeded")
    parser.add_argument("--seconds", type=float, default=6.0, help="how long (default 6)")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        asyncio.run(serve())
        return 0
    return int(not asyncio.run(flood(arguments.seconds)) and arguments.check)


if __name__ == "__main__":
    sys.exit(main())
