"""The server's front door: how many connections there are, and for how long one may stay unknown."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler

from fedsim.bus.http.limits import HttpLimits

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Door(web.Server):
    """An aiohttp server that closes connections beyond its limits.

    A connection is a stranger until a request on it shows a valid token. Of too many strangers the oldest
    makes way, so a flood of them cannot keep others out: a client process shows its token at once.
    """

    def __init__(self, handler: Handler, limits: HttpLimits, reject: Callable[..., None]) -> None:
        super().__init__(
            handler,
            access_log=None,
            logger=_counted(reject),
            keepalive_timeout=limits.handshake_timeout_s,
            lingering_time=0.0,
            read_bufsize=1 << 17,
            tcp_keepalive=True,
        )
        self._limits = limits
        self._reject = reject
        self._open: dict[asyncio.Protocol, asyncio.Transport] = {}
        self._strangers: dict[asyncio.Protocol, asyncio.TimerHandle] = {}

    @property
    def num_connections(self) -> int:
        """Connections that are open."""
        return len(self._open)

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        """Count a connection, or close it at once."""
        super().connection_made(handler, transport)
        self.enter(handler, transport)

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        """Forget a connection."""
        self.leave(handler)
        super().connection_lost(handler, exc)

    def enter(self, guest: asyncio.Protocol, transport: asyncio.Transport) -> bool:
        """Count a connection, a stranger for now; False where there is no room, so that it is closed."""
        if len(self._open) >= self._limits.max_connections and not self._evict():
            self._reject("connections")
            transport.abort()
            return False
        self._open[guest] = transport
        self._strangers[guest] = asyncio.get_running_loop().call_later(
            self._limits.handshake_timeout_s, self._expire, guest
        )
        if len(self._strangers) > self._limits.max_handshakes:
            self._evict()
        return True

    def leave(self, guest: asyncio.Protocol) -> None:
        """Count a connection no more."""
        self._open.pop(guest, None)
        self._known(guest)

    def known(self, request: web.BaseRequest) -> None:
        """Note that a request has shown a valid token."""
        self._known(request.protocol)

    def _known(self, guest: asyncio.Protocol) -> None:
        timer = self._strangers.pop(guest, None)
        if timer is not None:
            timer.cancel()

    def _expire(self, guest: asyncio.Protocol) -> None:
        self._reject("slow")
        self._turn_out(guest)

    def _evict(self) -> bool:
        oldest = next(iter(self._strangers), None)
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


class _Counting(logging.Handler):
    """Counts what aiohttp would print, of which nothing is shown: it may quote a stranger, or a secret."""

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
    logger = logging.Logger("fedsim.door")
    logger.addHandler(_Counting(reject))
    return logger
