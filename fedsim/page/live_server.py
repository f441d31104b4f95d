"""A page on loopback with server-sent events, served by a thread of its own.

The page consists of *panels*, JSON values by name. While a browser follows, they are made about once a
second, and those that have changed are sent with the version that they bring the page to. A page that
reconnects names its last version and gets the later changes; a new page, or one of another server, gets all.
So a slow reader misses versions only, and the server keeps one value of each panel.

There are two paths and one method, so this takes fewer lines than a framework. Importing aiohttp would take a
quarter of a second, more than all the rest.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic, thread_time
from typing import Self, TypeAlias

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
MAX_REQUEST_BYTES = 16_384
REQUEST_TIMEOUT_S = 10.0
"""Time for a request to arrive, and for an answer to be read."""
CLOSE_TIMEOUT_S = 3.0
"""Time for pages to get the last message."""

_HEADERS = """\
HTTP/1.1 {status}
Content-Type: {kind}; charset=utf-8
Cache-Control: no-store
Connection: close
Allow: GET
Content-Security-Policy: frame-ancestors 'none'
Cross-Origin-Resource-Policy: same-origin
Referrer-Policy: no-referrer
X-Content-Type-Options: nosniff
"""

_log = logging.getLogger(__name__)


class _RefusedError(Exception):
    """A refused request; holds the status line and the text."""


@dataclass(slots=True)
class _Panels:
    """The newest text of each panel and the version that changed it; ``token`` names this server."""

    version: int = 0
    token: str = field(default_factory=lambda: secrets.token_hex(8))
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
        is_whole = json.dumps(seen == 0)
        event = (
            f"id: {self.token}-{self.version}\n" + f'data: {{"whole": {is_whole}, "panels": {{{news}}}}}\n\n'
        )
        return event.encode()

    def seen(self, last_id: str) -> int:
        """Return the version of a page, given its last event; 0 for one of another server."""
        token, _, number = last_id.rpartition("-")
        is_mine = token == self.token and number.isdecimal() and int(number) <= self.version
        return int(number) if is_mine else 0


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
        server = await asyncio.start_server(self._answer, sock=self._socket, limit=MAX_REQUEST_BYTES)
        self._is_ready.set()
        await self._over.wait()
        server.close()
        if self._pages:
            self._update()
        self._is_last = True
        async with self._news:
            self._news.notify_all()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await asyncio.gather(*self._pages, return_exceptions=True)

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

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
            try:
                path, headers = self._request(head)
                if path == "/events":
                    await self._follow(writer, self._panels.seen(headers.get("last-event-id", "")))
                else:
                    writer.write(_answer("200 OK", "text/html", self._html))
            except _RefusedError as refusal:
                status, words = refusal.args
                writer.write(_answer(status, "text/plain", f"{words}\n".encode()))
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, ConnectionError):
            pass  # the peer is gone, or is no browser
        finally:
            writer.transport.abort()

    def _request(self, head: bytes) -> tuple[str, Mapping[str, str]]:
        """Return the path and the headers of a request, or refuse it."""
        first, *lines = head.decode("latin-1").split("\r\n")
        method, _, rest = first.partition(" ")
        path, _, version = rest.partition(" ")
        headers = dict[str, str]()
        for line in filter(None, lines):
            name, colon, value = line.partition(":")
            if not colon or headers.setdefault(name.lower(), value.strip()) != value.strip():
                raise _RefusedError("400 Bad Request", "this is no request of a browser")
        if not version.startswith("HTTP/1."):
            raise _RefusedError("400 Bad Request", "this is no request of a browser")
        host = headers.get("host", "").lower()
        if host not in self._hosts:
            raise _RefusedError("421 Misdirected Request", f"this page is at {self.url} and nowhere else")
        if headers.get("origin", f"http://{host}").lower() != f"http://{host}":
            raise _RefusedError("403 Forbidden", "pages from elsewhere cannot read this one")
        if method != "GET":
            raise _RefusedError("405 Method Not Allowed", "this page can only be read: GET it")
        path = path.partition("?")[0]
        if path not in ("/", "/events"):
            raise _RefusedError("404 Not Found", f"there is nothing but {self.url}")
        if path == "/events" and len(self._pages) >= MAX_PAGES:
            raise _RefusedError("503 Service Unavailable", f"{MAX_PAGES} pages follow already: close one")
        return path, headers

    async def _follow(self, writer: asyncio.StreamWriter, seen: int) -> None:
        """Send changes until the end, as fast as they are read."""
        page = asyncio.current_task()
        assert page is not None  # noqa: S101 - for mypy: this is a coroutine
        self._pages.append(page)
        try:
            writer.write(_head("200 OK", "text/event-stream") + b"\r\nretry: 1000\n\n")
            if self._updating is None:
                self._updating = asyncio.create_task(self._keep_updating())
                await asyncio.sleep(0)  # let it update
            is_last = False
            while not is_last:
                async with self._news:
                    while not (self._panels.version > seen or self._is_last):
                        await self._news.wait()
                is_last = self._is_last
                if self._panels.version > seen:
                    writer.write(self._panels.message(seen))
                    seen = self._panels.version
                    await writer.drain()
            writer.write(b"event: end\ndata: null\n\n")
        finally:
            self._pages.remove(page)


def own_hosts(port: int) -> set[str]:
    """Return the ``Host`` headers of this machine; browsers omit the default port of HTTP."""
    names = ("127.0.0.1", "localhost", "[::1]")
    return {f"{name}:{port}" for name in names} | ({*names} if port == HTTP_PORT else set())


def _head(status: str, kind: str) -> bytes:
    return _HEADERS.format(status=status, kind=kind).replace("\n", "\r\n").encode()


def _answer(status: str, kind: str, body: bytes) -> bytes:
    return _head(status, kind) + f"Content-Length: {len(body)}\r\n\r\n".encode() + body
