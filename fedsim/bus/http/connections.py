"""The server's connections: how many there are, and for how long one may stay unknown.

A connection is unknown until a request on it shows a valid token. Of too many of these the oldest makes way,
so a flood of them cannot keep others out: a client process shows its token at once. asyncio tells a server of
an encrypted connection only once its TLS handshake is done, and would not count who never ends it; so the
handshake is made here, after the connection has been counted.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler

from fedsim.bus.http.limits import HttpLimits

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Connections(web.Server):
    """An aiohttp server that closes connections beyond its limits; a handler ends with its connection."""

    def __init__(self, handler: Handler, limits: HttpLimits, reject: Callable[..., None]) -> None:
        super().__init__(
            handler,
            handler_cancellation=True,
            access_log=None,
            logger=_counted(reject),
            keepalive_timeout=2 * limits.heartbeat_s,
            lingering_time=0.0,
            read_bufsize=1 << 17,
            auto_decompress=False,  # no body is compressed, and a few bytes could stand for many
            tcp_keepalive=True,
        )
        self._limits = limits
        self._reject = reject
        self._open: dict[asyncio.Protocol, asyncio.Transport] = {}
        self._unknown: dict[asyncio.Protocol, asyncio.TimerHandle] = {}
        self._listener: asyncio.Server | None = None
        self._handshakes: dict[asyncio.Task[None], None] = {}

    @property
    def num_connections(self) -> int:
        """Connections that are open."""
        return len(self._open)

    async def listen(self, host: str, port: int, context: ssl.SSLContext | None) -> int:
        """Let connections in, encrypted if so told; return the port.

        Raises:
            OSError: The address cannot be listened at.
        """
        made: Callable[[], asyncio.BaseProtocol] = self
        if context is not None:
            made = lambda: _Handshake(self, context)  # noqa: E731
        self._listener = await asyncio.get_running_loop().create_server(made, host, port, backlog=512)
        return int(self._listener.sockets[0].getsockname()[1])

    def lock(self) -> None:
        """Let no further connection in."""
        if self._listener is not None:
            self._listener.close()

    async def close(self, grace_s: float) -> None:
        """Close all connections; requests that are being answered have so long."""
        self.lock()
        handshakes = list(self._handshakes)
        for task in handshakes:
            task.cancel()
        await asyncio.gather(*handshakes, return_exceptions=True)
        self.pre_shutdown()
        await self.shutdown(grace_s)
        if self._listener is not None:
            await self._listener.wait_closed()

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        """Count a connection, or close it at once."""
        super().connection_made(handler, transport)
        self._enter(handler, transport)

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        """Forget a connection."""
        self._leave(handler)
        super().connection_lost(handler, exc)

    def known(self, request: web.BaseRequest) -> None:
        """Note that a request has shown a valid token."""
        self._known(request.protocol)

    def shake_hands(self, guest: _Handshake, transport: asyncio.Transport, context: ssl.SSLContext) -> None:
        """Let a connection in and begin its TLS handshake, if there is room."""
        transport.pause_reading()  # what comes is for TLS to read
        if self._enter(guest, transport):
            task = asyncio.get_running_loop().create_task(self._encrypt(guest, transport, context))
            self._handshakes[task] = None
            task.add_done_callback(self._handshakes.pop)

    async def _encrypt(
        self, guest: _Handshake, transport: asyncio.Transport, context: ssl.SSLContext
    ) -> None:
        loop, encrypted = asyncio.get_running_loop(), None
        patience_s = self._limits.handshake_timeout_s
        try:
            if transport.is_closing():
                return
            encrypted = await loop.start_tls(
                transport, guest, context, server_side=True, ssl_handshake_timeout=patience_s
            )
        except (OSError, RuntimeError):  # of a connection lost meanwhile, some versions make the latter
            transport.abort()
        finally:
            self._leave(guest)
        if encrypted is not None and not encrypted.is_closing():
            guest.goes_on(self(), encrypted)

    def _enter(self, guest: asyncio.Protocol, transport: asyncio.Transport) -> bool:
        """Count a connection, unknown for now; False where there is no room, so that it is closed."""
        if len(self._open) >= self._limits.max_connections and not self._evict():
            self._reject("connections")
            transport.abort()
            return False
        self._open[guest] = transport
        self._unknown[guest] = asyncio.get_running_loop().call_later(
            self._limits.handshake_timeout_s, self._expire, guest
        )
        if len(self._unknown) > self._limits.max_handshakes:
            self._evict()
        return True

    def _leave(self, guest: asyncio.Protocol) -> None:
        self._open.pop(guest, None)
        self._known(guest)

    def _known(self, guest: asyncio.Protocol) -> None:
        timer = self._unknown.pop(guest, None)
        if timer is not None:
            timer.cancel()

    def _expire(self, guest: asyncio.Protocol) -> None:
        self._reject("slow")
        self._turn_out(guest)

    def _evict(self) -> bool:
        oldest = next(iter(self._unknown), None)
        if oldest is None:
            return False
        self._reject("connections")
        self._turn_out(oldest)
        return True

    def _turn_out(self, guest: asyncio.Protocol) -> None:
        self._known(guest)
        transport = self._open.pop(guest, None)
        if transport is not None:
            transport.abort()


class _Handshake(asyncio.Protocol):
    """One connection before its TLS handshake; passes on what comes before aiohttp has taken over."""

    def __init__(self, connections: Connections, context: ssl.SSLContext) -> None:
        self._connections = connections
        self._context = context
        self._early = bytearray()
        self._next: asyncio.Protocol | None = None
        self._has_begun = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if not self._has_begun:  # of the TCP connection, not of what is encrypted on it
            self._has_begun = True
            assert isinstance(transport, asyncio.Transport)  # noqa: S101
            self._connections.shake_hands(self, transport, self._context)

    def data_received(self, data: bytes) -> None:
        self._early += data

    def connection_lost(self, exc: Exception | None) -> None:
        if self._next is not None:
            self._next.connection_lost(exc)

    def goes_on(self, following: asyncio.Protocol, transport: asyncio.Transport) -> None:
        """Let another protocol take over."""
        self._next = following
        transport.set_protocol(following)
        following.connection_made(transport)
        if self._early:
            following.data_received(bytes(self._early))
            self._early.clear()


class _Counting(logging.Handler):
    """Counts what aiohttp would print, of which nothing is shown: it may quote a peer, or a secret."""

    def __init__(self, reject: Callable[..., None]) -> None:
        super().__init__()
        self._reject = reject

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        name = type(error).__name__
        if isinstance(error, HttpProcessingError):
            self._reject("http", name)
        elif record.levelno >= logging.WARNING:
            frames = traceback.extract_tb(error.__traceback__) if error is not None else []
            place = f" in {Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""
            self._reject("fault", name + place)


def _counted(reject: Callable[..., None]) -> logging.Logger:
    """Return a logger of the server's own, which is in no other's charge."""
    logger = logging.Logger("fedsim.bus.http")
    logger.addHandler(_Counting(reject))
    return logger
