"""A page on loopback that is followed by server-sent events, served by a thread of its own.

The page consists of *panels*, JSON values by name. While somebody looks, they are made anew about once a
second, and those that have changed are sent. A message says which version of the panels it brings a page to.
A page that comes back names the last version that it has, and gets what has changed since; a page that comes
for the first time, or from another server, gets all. So whoever reads slowly misses versions and nothing
else, and nothing is kept for anybody but the newest value of each panel.

There are two paths, and all that is ever done is to answer a GET, so this takes fewer lines than a framework;
and importing aiohttp would take a quarter of a second, which is more than all the rest.
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
"""Returns the panels as they are now, each as JSON. It is called in the server's thread."""

Clock: TypeAlias = Callable[[], float]
"""What passes while something goes on, s: time of the cores where this process computes, else real time. A
share of it may be taken for looks. It never goes back."""

EVERY_S = 1.0
"""Real time between two looks, or a multiple, ..."""

MOST_OF_THE_TIME = 0.005
"""... so that the server takes this share of the time that a run takes, at most; ..."""

LONGEST_S = 10.0
"""... but not more than this, since a run may also wait, and take no time."""

HTTP_PORT, MOST_PORT = 80, 65535

MOST_PAGES = 16
MOST_HEAD = 16_384
"""Bytes of a request."""
PATIENCE_S = 10.0
"""How long a request may take to arrive, and an answer to be read."""
GOODBYE_S = 3.0
"""How long pages may take to get the last message."""

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
    """A request that is not answered as it wants; holds the status line and the words."""


@dataclass(slots=True)
class _Panels:
    """The newest text of each panel, and the version that changed it.

    Attributes:
        version: How often panels have changed.
        token: Tells versions of this server from those of another.
    """

    version: int = 0
    token: str = field(default_factory=lambda: secrets.token_hex(8))
    _texts: dict[str, tuple[int, str]] = field(default_factory=dict)

    def put(self, texts: Mapping[str, str]) -> None:
        """Take panels as they are now; one that is not there any more becomes null."""
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
        """Return what has changed since a version, as an event; from 0 that is all."""
        news = ", ".join(
            f"{json.dumps(name)}: {text}" for name, (version, text) in self._texts.items() if version > seen
        )
        is_whole = json.dumps(seen == 0)
        event = (
            f"id: {self.token}-{self.version}\n" + f'data: {{"whole": {is_whole}, "panels": {{{news}}}}}\n\n'
        )
        return event.encode()

    def seen(self, last_id: str) -> int:
        """Return the version that a page has, given the last event's name; 0 if it is not known here."""
        token, _, number = last_id.rpartition("-")
        is_mine = token == self.token and number.isdecimal() and int(number) <= self.version
        return int(number) if is_mine else 0


class LiveServer:
    """Serves a page at a port of loopback from :meth:`start` to :meth:`close`.

    A thread that computes shares nothing with this one but what ``make`` reads.

    Args:
        html: The page, which follows ``/events``.
        make: What it shows.
        port: 0 lets the system choose.
        every_s: Real time between two looks, s.
        most_of_the_time: The share of the time of what is shown that its thread may take.

    Attributes:
        port: Where it listens.

    Raises:
        UserError: The port is none, or taken.
    """

    def __init__(
        self,
        html: bytes,
        make: Make,
        port: int = 0,
        *,
        every_s: float = EVERY_S,
        most_of_the_time: float = MOST_OF_THE_TIME,
    ) -> None:
        if not 0 <= port <= MOST_PORT:
            raise UserError(
                f"{port} is no port: choose one from 1024 to {MOST_PORT}, or leave it out, and the system "
                "chooses one"
            )
        try:
            self._socket = socket.create_server(("127.0.0.1", port))
        except OSError as error:
            said = os.strerror(error.errno or 0).lower()
            raise UserError(
                f"the live page cannot be served at 127.0.0.1:{port}: {said}. Choose another --live PORT, or "
                "leave the port out, and the system chooses one"
            ) from None
        self.port: int = self._socket.getsockname()[1]
        self._hosts = own_hosts(self.port)
        self._html = html
        self._make = make
        self._every_s = every_s
        self._most_of_the_time = most_of_the_time
        self._panels = _Panels()
        self._pages: list[asyncio.Task[None]] = []
        self._looking: asyncio.Task[None] | None = None
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve()), name="fedsim live page", daemon=True
        )
        self._is_ready = threading.Event()
        self._looked_s = -LONGEST_S
        self._news, self._over, self._is_new = asyncio.Condition(), asyncio.Event(), asyncio.Event()
        self._is_last = False

    @property
    def url(self) -> str:
        """Where a browser finds the page."""
        return f"http://127.0.0.1:{self.port}/"

    def start(self) -> Self:
        """Serve from now on."""
        self._thread.start()
        self._is_ready.wait()
        return self

    def renew(self, clock: Clock) -> None:
        """Look at once, since what is shown is something else from now on; once closed, nobody looks.

        Args:
            clock: Its time.
        """
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._begin, clock)

    def close(self) -> None:
        """Let pages have what the panels are now, for :data:`GOODBYE_S` at most, and end."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._over.set)
            self._thread.join()
        self._socket.close()

    # In the server's thread

    def _begin(self, clock: Clock) -> None:
        self._clock = clock
        self._began_s = thread_time(), clock()
        self._is_new.set()

    def _may_look(self) -> bool:
        spent_s, passed_s = thread_time() - self._began_s[0], self._clock() - self._began_s[1]
        is_late = monotonic() - self._looked_s >= LONGEST_S
        return is_late or self._is_new.is_set() or spent_s <= self._most_of_the_time * passed_s

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._begin(monotonic)
        server = await asyncio.start_server(self._answer, sock=self._socket, limit=MOST_HEAD)
        self._is_ready.set()
        await self._over.wait()
        server.close()
        if self._pages:
            self._look()
        self._is_last = True
        async with self._news:
            self._news.notify_all()
        with suppress(TimeoutError):
            async with asyncio.timeout(GOODBYE_S):
                await asyncio.gather(*self._pages, return_exceptions=True)

    def _look(self) -> None:
        self._looked_s = monotonic()
        try:
            self._panels.put(self._make())
        except Exception:  # a fault of the page must not become one of the run
            _log.exception("the live page could not be brought up to date")

    async def _look_again_and_again(self) -> None:
        while self._pages:
            if self._may_look():
                self._is_new.clear()
                self._look()
                async with self._news:
                    self._news.notify_all()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._every_s):
                    await self._is_new.wait()
        self._looking = None

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
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
            async with asyncio.timeout(PATIENCE_S):
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, ConnectionError):
            pass  # whoever it was is gone, or never spoke as a browser does
        finally:
            writer.transport.abort()

    def _request(self, head: bytes) -> tuple[str, Mapping[str, str]]:
        """Return the path and the headers of a request that may be answered.

        Raises:
            _RefusedError: It may not.
        """
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
        if path == "/events" and len(self._pages) >= MOST_PAGES:
            raise _RefusedError("503 Service Unavailable", f"{MOST_PAGES} pages follow already: close one")
        return path, headers

    async def _follow(self, writer: asyncio.StreamWriter, seen: int) -> None:
        """Send what is new until the end, as fast as it is read."""
        page = asyncio.current_task()
        assert page is not None  # noqa: S101 - for mypy: this is a coroutine
        self._pages.append(page)
        try:
            writer.write(_head("200 OK", "text/event-stream") + b"\r\nretry: 1000\n\n")
            if self._looking is None:
                self._looking = asyncio.create_task(self._look_again_and_again())
                await asyncio.sleep(0)  # let it look
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
    """Return by what names a browser calls a page of this machine; it leaves out the port of HTTP itself."""
    names = ("127.0.0.1", "localhost", "[::1]")
    return {f"{name}:{port}" for name in names} | ({*names} if port == HTTP_PORT else set())


def _head(status: str, kind: str) -> bytes:
    return _HEADERS.format(status=status, kind=kind).replace("\n", "\r\n").encode()


def _answer(status: str, kind: str, body: bytes) -> bytes:
    return _head(status, kind) + f"Content-Length: {len(body)}\r\n\r\n".encode() + body
