"""Entries of one or several messages, over a socket that is a list."""

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from aiohttp import WebSocketError, WSMsgType

from fedsim.bus.http.channel import MAX_MESSAGE_BYTES, Channel
from fedsim.bus.http.limits import HttpLimits
from fedsim.bus.http.messages import FROM_CLIENT, ProtocolError, entry
from fedsim.network.overhead import CHUNK_BYTES

SPENT = (0.0, 0.0, 0.0, 0.0)


class Socket:
    """Gives back what was sent, and then ends."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.error: Exception | None = None

    async def send_bytes(self, data: bytes) -> None:
        self.messages.append(bytes(data))

    async def receive(self, timeout_s: float) -> Any:
        if self.messages:
            return SimpleNamespace(type=WSMsgType.BINARY, data=self.messages.pop(0))
        return SimpleNamespace(type=WSMsgType.CLOSED, data=None)

    def exception(self) -> Exception | None:
        return self.error


def channel(socket: Socket, most: int = 1 << 30) -> Channel:
    return Channel(socket, FROM_CLIENT, HttpLimits(), most, lambda item: item)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "sizes", [(), (0,), (10, 7), (CHUNK_BYTES,), (100, 3 * CHUNK_BYTES, 1, CHUNK_BYTES - 9)]
)
async def test_entries_come_back_however_long(sizes: tuple[int, ...]) -> None:
    socket, parts = Socket(), [np.arange(size, dtype=np.uint8).tobytes() for size in sizes]
    mine = channel(socket)
    for _ in range(2):
        await mine._send(entry("r", 1, 2, SPENT, None, body=parts if sizes else None))
    assert max(map(len, socket.messages)) <= MAX_MESSAGE_BYTES
    is_long = len(socket.messages) > 2
    for _ in range(2):
        found = await mine.read()
        assert found[:2] == ("r", (1, 2, SPENT, None))
        assert (found.first_ns >= 0) == is_long
        if not sizes:
            assert found.body is None
            continue
        assert found.body is not None
        assert (bytes(found.body), found.body.readonly) == (b"".join(parts), True)
    with pytest.raises(ConnectionAbortedError):
        await mine.read()


async def test_a_body_is_as_long_as_was_announced() -> None:
    whole = b"".join(entry("r", 1, 2, SPENT, None, body=(bytes(100),)))
    for messages in ([whole + b"x"], [whole[:50], whole[50:] + b"x"]):
        socket = Socket()
        socket.messages += messages
        with pytest.raises(ProtocolError, match="more than 100 bytes"):
            await channel(socket).read()
    socket.messages = [whole]
    with pytest.raises(ProtocolError, match="100 bytes, the limit is 99"):
        await channel(socket, 99).read()
    socket.messages = [whole[:50], b"", whole[50:]]
    assert len((await channel(socket, 100).read()).body or b"") == 100


async def test_faults_of_websockets_are_breaches_and_ends_are_not() -> None:
    socket = Socket()
    socket.error = WebSocketError(1002, "reserved bits")
    with pytest.raises(ProtocolError, match="reserved bits"):
        await channel(socket).read()
    socket.error = ConnectionResetError("reset")
    with pytest.raises(ConnectionAbortedError):
        await channel(socket).read()


async def test_what_is_queued_is_written_in_order_with_signs_of_life() -> None:
    socket = Socket()
    mine = channel(socket)
    writing = asyncio.ensure_future(mine.write())
    try:
        mine.put(entry("u", 1, 2, "why"))
        mine.put(())  # nothing to say
        mine.put(entry("k"))
        await asyncio.sleep(50)  # two heartbeats
        assert [(await mine.read()).letter for _ in range(4)] == ["u", "k", "a", "a"]
        assert not socket.messages
    finally:
        writing.cancel()
