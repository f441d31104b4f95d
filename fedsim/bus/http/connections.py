"""Limits on the number of connections, and on the time in which one shows a valid token.

Of too many unknown connections, those without a valid token, the oldest is closed. So a flood cannot keep
client processes out, which show their token at once. A connection counts before its TLS handshake, which may
never end.
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
    """An aiohttp server that closes connections beyond its limits."""

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
        self._open: dict[RequestHandler, Callable[[], object]] = {}  # and how to break it
        self._unknown: dict[RequestHandler, asyncio.TimerHandle] = {}
        self._listener: asyncio.Server | None = None

    @property
    def num_connections(self) -> int:
        """Connections that are open."""
        return len(self._open)

    async def listen(self, host: str, port: int, context: ssl.SSLContext | None) -> int:
        """Accept connections; return the port."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self, host, port, ssl=context, backlog=512)
        return int(self._listener.sockets[0].getsockname()[1])

    def lock(self) -> None:
        """Accept no further connections."""
        if self._listener is not None:
            self._listener.close()

    async def close(self, grace_s: float) -> None:
        """Close all connections; requests under way have this time."""
        self.lock()
        for handler in list(self._unknown):
            if handler.transport is None:  # it is in its TLS handshake, of which aiohttp does not know
                self._break(handler)
        self.pre_shutdown()
        await self.shutdown(grace_s)
        if self._listener is not None:
            await self._listener.wait_closed()

    def __call__(self) -> RequestHandler:
        """Return the handler of a new connection; beyond the limits, break the oldest unknown one."""
        handler, limits = super().__call__(), self._limits
        # asyncio calls this in the task that accepts a connection, which a TLS handshake is part of.
        accepting = asyncio.current_task()
        assert accepting is not None  # noqa: S101
        is_full = len(self._open) >= limits.max_connections
        self._open[handler] = accepting.cancel
        self._unknown[handler] = asyncio.get_running_loop().call_later(
            limits.handshake_timeout_s, self._break, handler, "slow"
        )
        if is_full or len(self._unknown) > limits.max_handshakes:
            self._break(next(iter(self._unknown)), "connections")
        # connection_lost() is not called for a connection that was never made.
        accepting.add_done_callback(lambda _: self._leave(handler) if handler.transport is None else None)
        return handler

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        """Start a connection, unless it was broken meanwhile."""
        super().connection_made(handler, transport)
        if handler in self._open:
            self._open[handler] = transport.abort
        else:
            transport.abort()

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        """Forget a connection."""
        self._leave(handler)
        super().connection_lost(handler, exc)

    def known(self, request: web.BaseRequest) -> None:
        """Note that a request has shown a valid token."""
        if (timer := self._unknown.pop(request.protocol, None)) is not None:
            timer.cancel()

    def _leave(self, handler: RequestHandler) -> None:
        self._open.pop(handler, None)
        if (timer := self._unknown.pop(handler, None)) is not None:
            timer.cancel()

    def _break(self, handler: RequestHandler, cause: str = "") -> None:
        if cause:
            self._reject(cause)
        abort = self._open[handler]
        self._leave(handler)
        abort()


class _Counting(logging.Handler):
    """Counts the log lines of aiohttp and shows none: they may quote a peer or a secret."""

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
    """Return a logger of the server's own, outside the tree of loggers."""
    logger = logging.Logger("fedsim.bus.http")
    logger.addHandler(_Counting(reject))
    return logger
