"""The server of the live page: whom it answers, what it sends anew, and that nobody can hold it up."""

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from fedsim.errors import UserError
from fedsim.page import live_server
from fedsim.page.live_server import LiveServer, own_hosts

HTML = b"<!doctype html><p>live"
QUICKLY = {"interval_s": 0.0, "max_time_share": 1e9}

Serve = Callable[..., LiveServer]


class Counter:
    """Panels that change whenever they are looked at: one does, one does not."""

    def __init__(self) -> None:
        self.looks = 0
        self.waits: dict[int, threading.Event] = {}

    def __call__(self) -> Mapping[str, str]:
        self.looks += 1
        for number, event in self.waits.items():
            if self.looks >= number:
                event.set()
        return {"count": str(self.looks), "name": '"same"'}

    def reaches(self, number: int) -> threading.Event:
        return self.waits.setdefault(number, threading.Event())


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Return a function that starts a server, which ends with the test."""
    started = list[LiveServer]()

    def start(make: Callable[[], Mapping[str, str]] | None = None, **options: Any) -> LiveServer:
        server = LiveServer(HTML, make or Counter(), **options).start()
        started.append(server)
        return server

    yield start
    for server in started:
        server.close()


class Page:
    """What a browser does with the events."""

    def __init__(self, content: aiohttp.StreamReader) -> None:
        self._content = content
        self.panels = dict[str, Any]()

    async def event(self) -> dict[str, str]:
        fields = dict[str, str]()
        while line := (await self._content.readline()).decode().rstrip("\n"):
            name, _, value = line.partition(": ")
            fields[name] = value
        return fields

    async def news(self) -> dict[str, Any]:
        event = await self.event()
        while "data" not in event:
            event = await self.event()
        message: dict[str, Any] = json.loads(event["data"])
        self.panels |= message["panels"]
        return message


@asynccontextmanager
async def page_of(server: LiveServer) -> AsyncIterator[Page]:
    async with (
        aiohttp.ClientSession(read_bufsize=2**24) as session,
        session.get(f"{server.url}events") as answer,
    ):
        assert answer.status == 200
        assert answer.content_type == "text/event-stream"
        yield Page(answer.content)


async def test_the_page_and_what_it_shows(serve: Serve) -> None:
    server = serve()
    async with aiohttp.ClientSession() as session, session.get(server.url) as answer:
        assert await answer.read() == HTML
        assert answer.headers["Content-Security-Policy"] == "frame-ancestors 'none'"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Cache-Control"] == "no-store"
    async with page_of(server) as page:
        assert await page.news() == {"whole": True, "panels": {"count": 1, "name": "same"}}


async def test_only_what_has_changed_is_sent_again(serve: Serve) -> None:
    async with page_of(serve(**QUICKLY)) as page:
        await page.news()
        assert await page.news() == {"whole": False, "panels": {"count": 2}}


async def test_a_panel_that_is_gone_is_told(serve: Serve) -> None:
    shown = iter([{"one": "1", "two": "2"}])
    async with page_of(serve(lambda: next(shown, {"one": "1"}), **QUICKLY)) as page:
        await page.news()
        assert await page.news() == {"whole": False, "panels": {"two": None}}


async def test_who_comes_back_gets_all(serve: Serve) -> None:
    server = serve()
    for _ in range(2):
        async with page_of(server) as page:
            message = await page.news()
            assert message["whole"] is True
            assert message["panels"].keys() == {"count", "name"}


def test_browsers_leave_out_the_port_of_http_and_no_other() -> None:
    assert own_hosts(80) == {
        *("127.0.0.1:80", "localhost:80", "[::1]:80"),
        *("127.0.0.1", "localhost", "[::1]"),
    }
    assert own_hosts(8080) == {"127.0.0.1:8080", "localhost:8080", "[::1]:8080"}


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "localhost:{port}", "LOCALHOST:{port}", "[::1]:{port}"])
@pytest.mark.parametrize("origin", [None, "http://{host}"])
async def test_its_own_names_are_answered(serve: Serve, host: str, origin: str | None) -> None:
    server = serve()
    host = host.format(port=server.port)
    assert await status_of(server, {"Host": host, "Origin": origin and origin.format(host=host)}) == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "example.org:{port}"}, 421),
        ({"Host": "127.0.0.1"}, 421),
        ({"Host": "127.0.0.1:1"}, 421),
        ({"Host": "127.0.0.1:{port}@example.org"}, 421),
        ({"Origin": "http://example.org"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "https://127.0.0.1:{port}"}, 403),
        ({"Origin": "http://localhost:{port}"}, 403),
        ({"Host": "localhost:{port}", "Origin": "http://127.0.0.1:{port}"}, 403),
    ],
)
@pytest.mark.parametrize("path", ["/", "/events"])
async def test_others_are_refused(
    serve: Serve, headers: dict[str, str | None], status: int, path: str
) -> None:
    server = serve()
    named = {name: value and value.format(port=server.port) for name, value in headers.items()}
    assert await status_of(server, named, path=path) == status


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "HEAD"])
@pytest.mark.parametrize("path", ["/", "/events"])
async def test_it_can_only_be_read(serve: Serve, method: str, path: str) -> None:
    server = serve()
    said = await raw(server, f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode())
    assert said.startswith(b"HTTP/1.1 405 ")
    assert b"\r\nAllow: GET\r\n" in said


@pytest.mark.parametrize("path", ["/state", "//", "/events/", "/..", "/%2e%2e/etc/passwd"])
async def test_there_is_nothing_else(serve: Serve, path: str) -> None:
    assert await status_of(serve(), {}, path=path) == 404


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET / HTTP/1.1\r\nHost: {host}\r\nHost: example.org\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 10_000,
        b"\x16\x03\x01\x02\x00\r\n\r\n",
    ],
)
async def test_what_is_no_request_is_refused_and_not_told(
    serve: Serve, request_bytes: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve()
    request_bytes = request_bytes.replace(b"{host}", f"127.0.0.1:{server.port}".encode())
    assert b" 400 " in (await raw(server, request_bytes)).partition(b"\r\n")[0]
    assert caplog.text == ""


async def test_there_are_only_so_many_pages(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_server, "MAX_PAGES", 2)
    server = serve(**QUICKLY)
    async with page_of(server) as one:
        await one.news()
        async with page_of(server) as other:
            await other.news()
            assert await status_of(server, {}, path="/events") == 503
        while await status_of(server, {}, path="/events") == 503:  # until the server has seen that it is gone
            await one.news()


async def test_who_never_reads_holds_up_nobody(serve: Serve) -> None:
    """Beside a page that reads all, one never reads while there are 10,000 updates of a kilobyte."""
    big = "x" * 1000
    counter = Counter()

    def make() -> Mapping[str, str]:
        return {**counter(), "big": json.dumps(f"{counter.looks} {big}")}

    server = serve(make, **QUICKLY)
    with socket.create_connection(("127.0.0.1", server.port)) as slow:
        slow.sendall(f"GET /events HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode())
        async with page_of(server) as page:
            while page.panels.get("count", 0) < 10_000:
                await page.news()
        closing = threading.Thread(target=server.close)
        closing.start()
        received = b""
        while chunk := await asyncio.to_thread(slow.recv, 2**20):
            received += chunk
        closing.join()
    assert len(received) < 8_000_000, (
        "what it has not read was kept for it, beyond what the system's buffers hold"
    )
    assert b"event: end\ndata: null\n\n" in received
    *_, last = [line for line in received.split(b"\n") if line.startswith(b"data: {")]
    assert json.loads(last[6:])["panels"]["count"] == counter.looks, "it got the newest panels at last"


async def test_at_the_end_all_pages_get_the_last_panels(serve: Serve) -> None:
    said = {"state": '"running"'}
    server = serve(lambda: dict(said), interval_s=1000.0)
    async with page_of(server) as page:
        await page.news()
        said["state"] = '"ended"'
        closing = asyncio.to_thread(server.close)
        closed = asyncio.create_task(closing)
        assert await page.news() == {"whole": False, "panels": {"state": "ended"}}
        assert await page.event() == {"event": "end", "data": "null"}
        await closed
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port))


async def test_who_never_reads_holds_up_no_end(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_server, "CLOSE_TIMEOUT_S", 0.01)
    counter = Counter()

    def make() -> Mapping[str, str]:
        return {"big": json.dumps(f"{counter()} {'x' * 1_000_000}")}

    server = serve(make, **QUICKLY)
    with socket.create_connection(("127.0.0.1", server.port)) as slow:
        slow.sendall(f"GET /events HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode())
        await asyncio.to_thread(counter.reaches(50).wait)
        await asyncio.to_thread(server.close)


async def test_nobody_looks_while_nobody_reads(serve: Serve) -> None:
    counter = Counter()
    server = serve(counter, **QUICKLY)
    async with aiohttp.ClientSession() as session, session.get(server.url):
        pass
    assert counter.looks == 0
    async with page_of(server) as page:
        await page.news()
    server.close()
    assert counter.looks >= 1


async def test_a_fault_of_the_page_is_told_and_does_no_harm(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    looks = iter([ZeroDivisionError("of a page")])

    def make() -> Mapping[str, str]:
        for error in looks:
            raise error
        return {"count": "1"}

    async with page_of(serve(make, **QUICKLY)) as page:
        assert await page.news() == {"whole": True, "panels": {"count": 1}}
    assert "the live page could not be brought up to date" in caplog.text


async def test_it_takes_its_share_of_the_time_and_no_more(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While no time passes there is one look for long, however often it could be taken; then more."""
    counter, asked, passed_s = Counter(), Counter(), 0.0

    def clock() -> float:
        asked()
        return passed_s

    server = serve(counter, interval_s=0.001, max_time_share=0.01)
    server.renew(clock)
    async with page_of(server) as page:
        await page.news()
        looks = counter.looks
        await asyncio.to_thread(asked.reaches(asked.looks + 50).wait)
        assert counter.looks == looks
        passed_s = 1e6
        await page.news()
        assert counter.looks > looks
        passed_s = 0.0
        monkeypatch.setattr(live_server, "MAX_INTERVAL_S", 0.0)
        await page.news()
        await page.news()


async def test_something_else_is_shown_at_once(serve: Serve) -> None:
    shown = {"what": '"one"'}
    server = serve(lambda: dict(shown), interval_s=1000.0)
    async with page_of(server) as page:
        await page.news()
        shown["what"] = '"other"'
        server.renew(lambda: 0.0)
        assert (await page.news())["panels"] == {"what": "other"}


def test_a_port_that_is_taken_is_taught(serve: Serve) -> None:
    port = serve().port
    with pytest.raises(
        UserError, match=f"at 127.0.0.1:{port}: address already in use. Choose another --live"
    ):
        LiveServer(HTML, dict, port)


def test_a_run_goes_on_when_its_page_is_closed(serve: Serve) -> None:
    server = serve()
    server.close()
    server.renew(lambda: 0.0)
    server.close()


def test_a_server_that_was_never_started_ends_too(collect: Callable[[], int]) -> None:
    server = LiveServer(HTML, dict)
    server.close()
    del server
    collect()  # or the socket would warn that it was left open


async def status_of(server: LiveServer, headers: Mapping[str, str | None], path: str = "/") -> int:
    """Return the status of an answer to a request with these headers; None leaves one out."""
    named = {"Host": f"127.0.0.1:{server.port}", **headers}
    lines = [f"{name}: {value}\r\n" for name, value in named.items() if value is not None]
    said = await raw(server, f"GET {path} HTTP/1.1\r\n{''.join(lines)}\r\n".encode(), most=200)
    return int(said.split(b" ")[1])


async def raw(server: LiveServer, request: bytes, most: int = -1) -> bytes:
    """Return what comes back for some bytes, until the server closes, or as much as is wanted."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(request)
    try:
        return await reader.read(most)
    except ConnectionError:
        return b""
    finally:
        writer.close()
