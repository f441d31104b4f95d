"""A peer of the bus that makes requests by hand, and says in them what it likes."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from typing import Any

import aiohttp

from fedsim.bus.http.messages import FROM_SERVER, PROTOCOL, Entry, Reader, Reply, entry
from fedsim.wire import Frame, ModelUpdate, pack

NAME = "0123456789abcdef" * 2
"""The secret of its session."""
LARGE = 40_000  # floats
SPENT = (0.0, 0.0)


def hello(**values: Any) -> bytes:
    return json.dumps({"protocol": PROTOCOL, "clients": "0-9", **values}).encode()


def up(world: Any, client: int, num: int = 10) -> bytes:
    """Return the frame of a reply to what ``world.ask(client)`` has sent."""
    update = ModelUpdate.of(world.model(num, client), num_samples=1)
    return pack(update).frame(sender=client, receiver=-1, round=1, exchange="train").join()


def small(world: Any, client: int, dispatch: int = 0, frame: bytes | None = None) -> bytes:
    frame = up(world, client) if frame is None else frame
    return entry("r", client, dispatch, SPENT, None, body=frame)


def large(world: Any, client: int) -> bytes:
    frame = up(world, client, LARGE)
    whole = b"".join(Reply((client, 0), Frame(frame, len(frame)), SPENT).parts())
    return whole + sha256(whole).digest()


class Peer:
    """Makes requests by hand."""

    def __init__(self, world: Any, http: aiohttp.ClientSession) -> None:
        self.world, self.http = world, http
        self.headers = {"Fedsim-Session": NAME}
        self.reader = Reader(FROM_SERVER, 1 << 20)
        self.entries: list[Entry] = []
        self.outbox: aiohttp.ClientResponse

    async def request(self, method: str, path: str, body: Any = b"", **headers: str) -> int:
        """Return the status of an answer, 0 where there is none."""
        try:
            async with self.http.request(
                method, self.world.url + path, data=body, headers={**self.headers, **headers}
            ) as response:
                await response.read()
                return response.status
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
            return 0

    async def replies(self, body: bytes, query: str = "had=0&ready=1") -> int:
        return await self.request("POST", f"/replies?{query}", body)

    async def put(self, body: bytes, client: int = 0) -> int:
        """Send a large reply."""
        return await self.request("PUT", f"/dispatch/{client}/0", body)

    async def begin_put(self, total: int, client: int = 0) -> asyncio.StreamWriter:
        """Begin a large reply that does not go on."""
        _, writer = await asyncio.open_connection("127.0.0.1", self.world.port)
        head = f"PUT /dispatch/{client}/0 HTTP/1.1\r\nHost: localhost\r\nFedsim-Session: {NAME}\r\n"
        writer.write(f"{head}Content-Length: {total}\r\n\r\nabc".encode())
        return writer

    async def asked(self, *clients: int) -> None:
        """Let the server ask clients, and wait until that has come."""
        for client in clients:
            self.world.ask(client)
            await self.heard("d")

    async def heard(self, letter: str) -> Entry:
        """Return the next entry of the outbox with this letter."""
        while True:
            while self.entries:
                if (found := self.entries.pop(0)).letter == letter:
                    return found
            self.entries += self.reader.feed(await self.world.within(self.outbox.content.readany()))


@asynccontextmanager
async def peer(world: Any, *, joins: bool = True, token: str = "") -> AsyncIterator[Peer]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with aiohttp.ClientSession(headers=headers) as http:
        made = Peer(world, http)
        if not joins:
            yield made
            return
        assert await made.request("POST", "/join", hello()) == 200
        async with http.get(f"{world.url}/outbox?after=0&ready=1", headers=made.headers) as made.outbox:
            yield made


async def say(world: Any, said: bytes) -> bytes:
    """Return what is answered on a connection until it ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    writer.write(said)
    answer = b""
    with suppress(ConnectionError):
        answer = await world.within(reader.read())
    writer.close()
    return answer
