"""A peer of the bus that says by hand what it likes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiohttp

from fedsim.bus.http.messages import FROM_SERVER, PROTOCOL, Entry, entry, keys_entry, read_head
from fedsim.wire import ModelUpdate, pack

NAME = "0123456789abcdef" * 2
"""The secret of its session."""
SPENT = (0.0, 0.0, 0.0, 0.0)
HAS_NOTHING = b"".join(keys_entry([]))


def up(world: Any, client: int, num: int = 10) -> bytes:
    """Return the frame of a reply to what ``world.ask(client)`` has sent."""
    update = ModelUpdate.of(world.model(num, client), num_samples=1)
    return pack(update).frame(sender=client, receiver=-1, round=1, exchange="train").join()


def whole(letter: str, *values: Any, body: bytes | None = None) -> bytes:
    return b"".join(entry(letter, *values, body=None if body is None else (body,)))


def joining(clients: str = "0-9", secret: str = NAME) -> bytes:
    return whole("j", secret, "", body=clients.encode())


def reply(world: Any, client: int, dispatch: int = 0, frame: bytes | None = None) -> bytes:
    return whole("r", client, dispatch, SPENT, None, body=up(world, client) if frame is None else frame)


class Peer:
    def __init__(self, world: Any, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.world, self.socket = world, socket

    async def say(self, *messages: bytes) -> None:
        for message in messages:
            await self.socket.send_bytes(message)

    async def heard(self, letter: str) -> Entry:
        while True:
            message = await self.world.within(self.socket.receive_bytes())
            found, _, body = read_head(message, FROM_SERVER)
            if found.letter == letter:
                return found._replace(body=body)

    async def asked(self, *clients: int) -> None:
        """Let the server ask clients, and wait until that has come."""
        for client in clients:
            self.world.ask(client)
            await self.heard("d")

    async def is_cut(self) -> bool:
        while (await self.world.within(self.socket.receive())).type is aiohttp.WSMsgType.BINARY:
            pass
        return True


@asynccontextmanager
async def peer(
    world: Any, *, clients: str = "0-9", joins: bool = True, token: str = ""
) -> AsyncIterator[Peer]:
    headers = {"Fedsim-Protocol": str(PROTOCOL)} | ({"Authorization": f"Bearer {token}"} if token else {})
    async with (
        aiohttp.ClientSession() as http,
        http.ws_connect(f"{world.url}/session", headers=headers) as socket,
    ):
        made = Peer(world, socket)
        if joins:
            await made.say(joining(clients), HAS_NOTHING, whole("k"))
            await made.heard("h")
        yield made


async def say(world: Any, said: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    writer.write(said)
    answer = b""
    with suppress(ConnectionError):
        answer = await world.within(reader.read())
    writer.close()
    return answer
