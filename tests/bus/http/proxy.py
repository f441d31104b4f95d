"""A TCP proxy between two sides of the bus that does harm: delays, cuts, stalls, repeats."""

from __future__ import annotations

import asyncio
import re
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass, field


@dataclass
class Proxy:
    """A TCP proxy that counts what it passes on, and does harm to it.

    Attributes:
        target: The port to which it passes on.
        slice_bytes: Bytes are passed on in pieces of this length.
        latency_s: And each piece so much later.
        bytes_per_s: And no faster.
        reset_after: After so many bytes, upwards, all connections are reset; then once only.
        reset_every: All connections are reset each time that so many bytes have passed, either way.
        stall_after: After so many bytes, upwards, one direction of a connection moves no more; once only.
        stall_down_after: The same, downwards.
        repeat_up: So many of the next requests with small replies reach the server twice.
        repeat_down: So many of the next outboxes begin with the first dispatch again.
        up: Bytes passed on, upwards.
        down: The same, downwards.
        accepted: Connections.
        repeated: Requests repeated so far.
    """

    target: int
    slice_bytes: int = 1 << 16
    latency_s: float = 0.0
    bytes_per_s: float = 0.0
    reset_after: int | None = None
    reset_every: int = 0
    stall_after: int | None = None
    stall_down_after: int | None = None
    repeat_up: int = 0
    repeat_down: int = 0
    up: int = 0
    down: int = 0
    accepted: int = 0
    repeated: int = 0
    url: str = ""
    _since_reset: int = 0
    _open: asyncio.Event = field(default_factory=asyncio.Event)
    _server: asyncio.Server | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def start(self) -> Proxy:
        self._open.set()
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    def swallow(self, everything: bool) -> None:
        """Let nothing through from now on, or everything again."""
        (self._open.clear if everything else self._open.set)()

    def reset_all(self) -> None:
        """Reset every connection."""
        for writer in self._writers:
            _reset(writer)
        self._writers.clear()

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        self._server = None
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._server is None:  # it was accepted just before
            _reset(writer)
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
                    _reset(end)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, up: bool) -> None:
        while data := await reader.read(self.slice_bytes):
            await self._open.wait()
            if self.latency_s or self.bytes_per_s:
                pause_s = len(data) / self.bytes_per_s if self.bytes_per_s else 0.0
                await asyncio.sleep(self.latency_s + pause_s)
            if up:
                self.up += len(data)
                data = await self._repeated(data)
            else:
                self.down += len(data)
            if self._must_reset(len(data)):
                self.reset_all()
                return
            if self._must_stall(up):
                await asyncio.Event().wait()
            writer.write(data)
            await writer.drain()
            await asyncio.sleep(0)  # a stream's read does not wait where it has something: let others run
        await self._open.wait()
        with suppress(OSError):
            writer.write_eof()

    def _must_reset(self, num_bytes: int) -> bool:
        if self.reset_after is not None and self.up >= self.reset_after:
            self.reset_after = None
            return True
        self._since_reset += num_bytes
        if self.reset_every and self._since_reset >= self.reset_every:
            self._since_reset = 0
            return True
        return False

    def _must_stall(self, up: bool) -> bool:
        after = self.stall_after if up else self.stall_down_after
        if after is None or (self.up if up else self.down) < after:
            return False
        if up:
            self.stall_after = None
        else:
            self.stall_down_after = None
        return True

    async def _repeated(self, data: bytes) -> bytes:
        if data.startswith(b"POST /replies") and self.repeat_up and len(data) < self.slice_bytes:
            self.repeat_up -= 1
            self.repeated += 1
            reader, writer = await asyncio.open_connection("127.0.0.1", self.target)
            try:
                writer.write(data)
                await reader.readline()  # it has been answered before the first copy comes
            finally:
                writer.transport.abort()
        if data.startswith(b"GET /outbox") and self.repeat_down:
            self.repeat_down -= 1
            self.repeated += 1
            return re.sub(rb"after=\d+", b"after=0", data)
        return data


def _reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    if sock is not None and sock.fileno() >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
