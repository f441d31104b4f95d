"""A page on loopback with server-sent events, served by aiohttp in a thread of its own.

The page consists of *panels*, JSON values by name. While a browser follows, they are made about once a
second, and those that have changed since its last message are sent. A page that reconnects gets all. So a
slow reader misses versions only, and the server keeps one value of each panel.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic, thread_time
from typing import Self, TypeAlias

from aiohttp import web

from fedsim.errors import UserError

Make: TypeAlias = Callable[[], Mapping[str, str]]
"""Returns the panels, each as JSON; called in the server's thread."""

Clock: TypeAlias = Callable[[], float]
"""Time of a run, s: CPU time if this process computes it, else real time. It never decreases."""

UPDATE_INTERVAL_S = 1.0
"""Real time between two updates of the panels."""
MAX_TIME_SHARE = 0.005
"""Share of the run's time that updates may take; an update that would take more is left out."""
MAX_INTERVAL_S = 10.0
"""Longest real time between two updates, since a run may also wait and take no time."""

HTTP_PORT, MAX_PORT = 80, 65535

MAX_PAGES = 16
CLOSE_TIMEOUT_S = 3.0
"""Time for pages to get the last message."""

_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

_log = logging.getLogger(__name__)
_http_log = logging.getLogger(f"{__name__}.http")
_http_log.disabled = True  # requests of what is no browser are no matter of the run


@dataclass(slots=True)
class _Panels:
    """The newest text of each panel and the version that changed it."""

    version: int = 0
    _texts: dict[str, tuple[int, str]] = field(default_factory=dict)

    def put(self, texts: Mapping[str, str]) -> None:
        """Take new panels; one that is gone becomes null."""
        gone = dict.fromkeys(self._texts.keys() - texts.keys(), "null")
        changed = {
            name: text
            for name, text in {**texts, **gone}.items()
            if name not in self._texts or self._texts[name][1] != text
        }
        if changed:
            self.version += 1
            self._texts |= {name: (self.version, text) for name, text in changed.items()}

    def message(self, seen: int) -> bytes:
        """Return the changes since a version as an event; all panels since 0."""
        news = ", ".join(
            f"{json.dumps(name)}: {text}" for name, (version, text) in self._texts.items() if version > seen
        )
        return f'data: {{"whole": {json.dumps(seen == 0)}, "panels": {{{news}}}}}\n\n'.encode()


class LiveServer:
    """Serves a page at a port of loopback from :meth:`start` to :meth:`close`.

    The page ``html`` follows ``/events``. The server's thread shares with others only what ``make`` reads.
    Port 0 lets the system choose.
    """

    def __init__(
        self,
        html: bytes,
        make: Make,
        port: int = 0,
        *,
        interval_s: float = UPDATE_INTERVAL_S,
        max_time_share: float = MAX_TIME_SHARE,
    ) -> None:
        if not 0 <= port <= MAX_PORT:
            raise UserError(
                f"{port} is no port: choose one from 1024 to {MAX_PORT}, or leave it out, and the system "
                "chooses one"
            )
        try:
            self._socket = socket.create_server(("127.0.0.1", port))
        except OSError as error:
            reason = os.strerror(error.errno or 0).lower()
            raise UserError(
                f"the live page cannot be served at 127.0.0.1:{port}: {reason}. Choose another --live PORT, "
                "or leave the port out, and the system chooses one"
            ) from None
        self.port: int = self._socket.getsockname()[1]
        self._hosts = own_hosts(self.port)
        self._html = html
        self._make = make
        self._interval_s = interval_s
        self._max_time_share = max_time_share
        self._panels = _Panels()
        self._pages: list[asyncio.Task[None]] = []
        self._updating: asyncio.Task[None] | None = None
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve()), name="fedsim live page", daemon=True
        )
        self._is_ready = threading.Event()
        self._updated_s = -MAX_INTERVAL_S
        self._news, self._over, self._is_new = asyncio.Condition(), asyncio.Event(), asyncio.Event()
        self._is_last = False

    @property
    def url(self) -> str:
        """Address of the page."""
        return f"http://127.0.0.1:{self.port}/"

    def start(self) -> Self:
        """Serve from now on."""
        self._thread.start()
        self._is_ready.wait()
        return self

    def renew(self, clock: Clock) -> None:
        """Update at once, for something else to show with this clock; no-op once closed."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._begin, clock)

    def close(self) -> None:
        """Send the last panels, within :data:`CLOSE_TIMEOUT_S`, and end."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._over.set)
            self._thread.join()
        self._socket.close()

    # In the server's thread

    def _begin(self, clock: Clock) -> None:
        self._clock = clock
        self._began_s = thread_time(), clock()
        self._is_new.set()

    def _may_update(self) -> bool:
        spent_s, passed_s = thread_time() - self._began_s[0], self._clock() - self._began_s[1]
        is_late = monotonic() - self._updated_s >= MAX_INTERVAL_S
        return is_late or self._is_new.is_set() or spent_s <= self._max_time_share * passed_s

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._begin(monotonic)
        app = web.Application()
        app.router.add_get("/", self._page, allow_head=False)
        app.router.add_get("/events", self._follow, allow_head=False)
        app.on_response_prepare.append(_add_headers)
        runner = web.AppRunner(app, access_log=None, logger=_http_log, shutdown_timeout=CLOSE_TIMEOUT_S)
        await runner.setup()
        await web.SockSite(runner, self._socket).start()
        self._is_ready.set()
        await self._over.wait()
        if self._pages:
            self._update()
        self._is_last = True
        async with self._news:
            self._news.notify_all()
        await runner.cleanup()

    def _update(self) -> None:
        self._updated_s = monotonic()
        try:
            self._panels.put(self._make())
        except Exception:  # a fault of the page must not become one of the run
            _log.exception("the live page could not be brought up to date")

    async def _keep_updating(self) -> None:
        while self._pages:
            if self._may_update():
                self._is_new.clear()
                self._update()
                async with self._news:
                    self._news.notify_all()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._interval_s):
                    await self._is_new.wait()
        self._updating = None

    def _check(self, request: web.Request) -> None:
        """Refuse what asks for another host, or comes from another page."""
        host = request.headers.get("Host", "").lower()
        if host not in self._hosts:
            raise web.HTTPMisdirectedRequest(text=f"this page is at {self.url} and nowhere else\n")
        if request.headers.get("Origin", f"http://{host}").lower() != f"http://{host}":
            raise web.HTTPForbidden(text="pages from elsewhere cannot read this one\n")

    async def _page(self, request: web.Request) -> web.Response:
        self._check(request)
        return web.Response(body=self._html, content_type="text/html", charset="utf-8")

    async def _follow(self, request: web.Request) -> web.StreamResponse:
        """Send changes until the end, as fast as they are read."""
        self._check(request)
        if len(self._pages) >= MAX_PAGES:
            raise web.HTTPServiceUnavailable(text=f"{MAX_PAGES} pages follow already: close one\n")
        page, transport = asyncio.current_task(), request.transport
        assert page is not None and transport is not None  # noqa: S101, PT018 - for mypy
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        self._pages.append(page)
        try:
            await response.prepare(request)
            await response.write(b"retry: 1000\n\n")
            if self._updating is None:
                self._updating = asyncio.create_task(self._keep_updating())
                await asyncio.sleep(0)  # let it update
            seen, is_last = 0, False
            while not is_last:
                async with self._news:
                    while not (self._panels.version > seen or self._is_last):
                        await self._news.wait()
                is_last = self._is_last
                if self._panels.version > seen:
                    message, seen = self._panels.message(seen), self._panels.version
                    await response.write(message)
            await response.write(b"event: end\ndata: null\n\n")
        except BaseException:  # the page is gone, or does not read
            transport.abort()
            raise
        finally:
            self._pages.remove(page)
        return response


def own_hosts(port: int) -> set[str]:
    """Return the ``Host`` headers of this machine; browsers omit the default port of HTTP."""
    names = ("127.0.0.1", "localhost", "[::1]")
    return {f"{name}:{port}" for name in names} | ({*names} if port == HTTP_PORT else set())


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)
    response.force_close()
