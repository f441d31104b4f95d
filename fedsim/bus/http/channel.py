"""One connection between a client process and the server: entries over a WebSocket, both ways at once."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
from aiohttp import ClientWebSocketResponse, WebSocketError, WSMsgType, web

from fedsim.bus.http.limits import HttpLimits
from fedsim.bus.http.messages import Entry, Parts, ProtocolError, entry, read_head
from fedsim.clock import now_ns
from fedsim.network.overhead import CHUNK_BYTES

MAX_MESSAGE_BYTES = 3 * CHUNK_BYTES
"""Longest message that is taken: a head, the rest of a chunk, and a chunk."""
_ALIVE = entry("a")


class Channel:
    """Reads entries with these letters, and writes what is queued.

    Args:
        socket: A connection that is open.
        letters: The letters of the entries that may come.
        limits: How long a peer may be silent.
        max_body_bytes: Longest body that is taken.
        encoded: Returns the entry of an item of the queue, when its turn has come; empty for none.
    """

    def __init__(
        self,
        socket: web.WebSocketResponse | ClientWebSocketResponse,
        letters: frozenset[str],
        limits: HttpLimits,
        max_body_bytes: int,
        encoded: Callable[[Any], Parts],
    ) -> None:
        self.max_body_bytes = max_body_bytes
        self._socket = socket
        self._letters = letters
        self._limits = limits
        self._encoded = encoded
        self._queue = deque[Any]()
        self._wake = asyncio.Event()

    def put(self, item: Any) -> None:
        """Queue something to be written."""
        self._queue.append(item)
        self._wake.set()

    async def write(self) -> None:
        """Write what is queued, and signs of life, until the connection ends."""
        try:
            while True:
                if self._queue:
                    await self._send(self._encoded(self._queue.popleft()))
                    continue
                self._wake.clear()
                try:
                    async with asyncio.timeout(self._limits.heartbeat_s):
                        await self._wake.wait()
                except TimeoutError:
                    await self._send(_ALIVE)
        except OSError:
            pass  # its reader notices

    async def _send(self, parts: Parts) -> None:
        """Send parts as messages of about a chunk, which are copied."""
        pieces, num_bytes = list[memoryview](), 0
        for part in parts:
            view = memoryview(part).cast("B")
            for start in range(0, len(view), CHUNK_BYTES):
                pieces.append(view[start : start + CHUNK_BYTES])
                num_bytes += len(pieces[-1])
                if num_bytes >= CHUNK_BYTES:
                    await self._socket.send_bytes(b"".join(pieces))
                    pieces, num_bytes = [], 0
        if pieces:
            await self._socket.send_bytes(b"".join(pieces))

    async def read(self) -> Entry:
        """Wait for the next entry; a TimeoutError if the peer is silent."""
        found, num_bytes, piece = read_head(await self._message(), self._letters)
        if num_bytes is None:
            return found
        if num_bytes > self.max_body_bytes:
            raise ProtocolError(f"{found.letter}: {num_bytes} bytes, the limit is {self.max_body_bytes}")
        # Its memory is used only as bytes arrive. Arrays of a frame begin at multiples of 16 bytes.
        body = memoryview(np.empty(num_bytes, np.uint8).data)
        first_ns = now_ns() if len(piece) < num_bytes else -1
        end = 0
        while True:
            start, end = end, end + len(piece)
            if end > num_bytes:
                raise ProtocolError(f"{found.letter}: more than {num_bytes} bytes")
            body[start:end] = piece
            if end == num_bytes:
                return found._replace(body=body.toreadonly(), first_ns=first_ns)
            piece = memoryview(await self._message())

    async def _message(self) -> bytes:
        message = await self._socket.receive(self._limits.silence_s)
        if message.type is WSMsgType.BINARY:
            data: bytes = message.data
            return data
        error = self._socket.exception()
        if isinstance(error, WebSocketError) or message.type is WSMsgType.TEXT:
            raise ProtocolError(f"no message of this protocol: {error or message.type.name}")
        raise ConnectionAbortedError("the connection has ended")
