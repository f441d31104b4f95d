"""A TCP proxy between two sides of the bus that does harm: delays, cuts, stalls."""

from __future__ import annotations

import asyncio
import math
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass, field


@dataclass
class Proxy:
    """A TCP proxy that counts what it passes on, and does harm to it."""

    target: int  # the port to which it passes on
    slice_bytes: int = 1 << 16  # bytes are passed on in pieces of this length,
    latency_s: float = 0.0  # each so much later,
    bytes_per_s: float = math.inf  # and no faster
    reset_after: float = math.inf  # after so many bytes, upwards, all connections are reset,
    reset_again: float = math.inf  # and again each time that so many more have passed
    stall_after: float = math.inf  # after so many, upwards, one direction of a connection moves no more, once
    stall_down_after: float = math.inf  # the same, downwards
    up: int = 0  # bytes passed on, upwards
    down: int = 0  # the same, downwards
    accepted: int = 0  # connections
    url: str = ""
    _open: asyncio.Event = field(default_factory=asyncio.Event)
    _open_down: asyncio.Event = field(default_factory=asyncio.Event)
    _server: asyncio.Server | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def start(self) -> Proxy:
        self.swallow(False)
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    def swallow(self, everything: bool) -> None:
        """Let nothing through from now on, or everything again."""
        (self._open.clear if everything else self._open.set)()
        self.swallow_down(everything)

    def swallow_down(self, everything: bool) -> None:
        """Let nothing through downwards from now on, or everything again."""
        (self._open_down.clear if everything else self._open_down.set)()

    def reset_all(self) -> None:
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
            with suppress(OSError):  # nobody is there, or one has gone
                there, away = await asyncio.open_connection("127.0.0.1", self.target)
                ends.append(away)
                self._writers += ends
                await asyncio.gather(self._pump(reader, away, True), self._pump(there, writer, False))
            for end in ends:
                end.close()
                with suppress(OSError):
                    await end.wait_closed()
        finally:
            for end in ends:
                if not end.is_closing():  # it was cancelled
                    _reset(end)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, up: bool) -> None:
        while data := await reader.read(self.slice_bytes):
            await (self._open if up else self._open_down).wait()
            if pause_s := self.latency_s + len(data) / self.bytes_per_s:
                await asyncio.sleep(pause_s)
            if up:
                self.up += len(data)
            else:
                self.down += len(data)
            if self.up >= self.reset_after:
                self.reset_after += self.reset_again
                self.reset_all()
                return
            if self.up >= self.stall_after and up:
                self.stall_after = math.inf
                await asyncio.Event().wait()
            if self.down >= self.stall_down_after and not up:
                self.stall_down_after = math.inf
                await asyncio.Event().wait()
            writer.write(data)
            await writer.drain()
            await asyncio.sleep(0)  # a stream's read does not wait where it has something: let others run
        await self._open.wait()
        with suppress(OSError):
            writer.write_eof()


def _reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    if sock is not None and sock.fileno() >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
