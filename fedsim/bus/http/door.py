"""The server's front door: how many connections there are, and for how long one may stay unknown."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from fedsim.bus.http.limits import HttpLimits

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Door(web.Server):
    """An aiohttp server that closes connections beyond its limits.

    A connection is a stranger until a request on it shows a valid token. Of too many strangers the oldest
    makes way, so a flood of them cannot keep others out: a client process shows its token at once.
    """

    def __init__(self, handler: Handler, limits: HttpLimits, rejected: Counter[str]) -> None:
        super().__init__(
            handler,
            access_log=None,
            keepalive_timeout=limits.handshake_timeout_s,
            lingering_time=0.0,
            read_bufsize=1 << 17,
            tcp_keepalive=True,
        )
        self._limits = limits
        self._rejected = rejected
        self._open: dict[RequestHandler, asyncio.Transport] = {}
        self._strangers: dict[RequestHandler, asyncio.TimerHandle] = {}

    @property
    def num_connections(self) -> int:
        """Connections that are open."""
        return len(self._open)

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        """Count a connection, or close it at once."""
        super().connection_made(handler, transport)
        if len(self._open) >= self._limits.max_connections and not self._evict():
            self._rejected["connections"] += 1
            transport.abort()
            return
        self._open[handler] = transport
        self._strangers[handler] = asyncio.get_running_loop().call_later(
            self._limits.handshake_timeout_s, self._expire, handler
        )
        if len(self._strangers) > self._limits.max_handshakes:
            self._evict()

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        """Forget a connection."""
        self._open.pop(handler, None)
        self._known(handler)
        super().connection_lost(handler, exc)

    def known(self, request: web.BaseRequest) -> None:
        """Note that a request has shown a valid token."""
        self._known(request.protocol)

    def _known(self, handler: RequestHandler) -> None:
        timer = self._strangers.pop(handler, None)
        if timer is not None:
            timer.cancel()

    def _expire(self, handler: RequestHandler) -> None:
        self._rejected["slow"] += 1
        self._turn_out(handler)

    def _evict(self) -> bool:
        oldest = next(iter(self._strangers), None)
        if oldest is None:
            return False
        self._rejected["connections"] += 1
        self._turn_out(oldest)
        return True

    def _turn_out(self, handler: RequestHandler) -> None:
        self._known(handler)
        transport = self._open.pop(handler, None)
        if transport is not None:
            transport.abort()
