"""Connections that say nothing, no HTTP, or what web pages say: closed, counted, and not shown."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any
from unittest.mock import patch

import aiohttp
import pytest

from fedsim.bus.http.access import Access, ClientRanges, new_token
from fedsim.bus.http.requests import open_http
from fedsim.errors import UserError
from tests.bus.http.peer import NAME, peer, say


async def test_slow_peers_are_turned_out(world: Any) -> None:
    await say(world, b"GET /outbox HTTP/1.1\r\nX-Slow: ")
    await say(world, b"POST /join HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n")
    assert world.server.rejected["slow"] == 2
    async with peer(world) as bad:
        await bad.asked(0)
        head = f"PUT /dispatch/0/0 HTTP/1.1\r\nHost: localhost\r\nFedsim-Session: {NAME}\r\n"
        head += "Content-Range: bytes 0-9999/10000\r\nContent-Length: 10000\r\n\r\n"
        stalled = asyncio.ensure_future(say(world, f"{head}abc".encode()))
        await world.until(lambda: world.held_bytes == 3)
        assert await bad.put(bytes(9997), start=3, total=10_000) == 409  # a request is at it
        await stalled
        assert world.server.rejected["slow"] == 3
        assert await bad.put(bytes(9990), start=10, total=10_000) == 409
        assert bad.held == "3"
        assert await bad.put(bytes(9997), start=3, total=10_000) == 422  # its place was given back
    await world.until(lambda: world.server.connections.num_connections == 0)


SECRET = "fedsim_do-not-tell"  # noqa: S105
MALFORMED = {
    "a space before a colon": f"GET /outbox HTTP/1.1\r\nHost: a\r\nAuthorization : Bearer {SECRET}\r\n\r\n",
    "another version": f"GET /{SECRET} HTTP/9.9\r\n\r\n",
    "no request": f"{SECRET}\r\n\r\n",
    "no method": f"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nG@T /{SECRET} HTTP/1.1\r\n\r\n",
    "a long header": f"GET / HTTP/1.1\r\nHost: localhost\r\nX: {SECRET * 5000}\r\n\r\n",
    "a bad chunk": f"PUT /dispatch/0/0 HTTP/1.1\r\nHost: localhost\r\nFedsim-Session: {NAME}\r\n"
    f"Transfer-Encoding: chunked\r\nContent-Range: bytes 0-99/100\r\n\r\n{SECRET}\r\n",
    "TLS": "\x16\x03\x01\x02\x00\x01",
    "empty lines": "\r\n" * 50,
    "no line": "x" * 20_000,
}


async def test_what_is_no_http_is_counted_and_nothing_of_it_is_shown(
    world: Any, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level("DEBUG", "aiohttp")
    for why, malformed in MALFORMED.items():
        before = sum(world.server.rejected.values())
        said = await say(world, malformed.encode())
        assert said == b"" or said.startswith((b"HTTP/1.0 4", b"HTTP/1.1 4", b"HTTP/1.1 200")), why
        await world.until(lambda: world.server.connections.num_connections == 0)
        assert sum(world.server.rejected.values()) > before, why
    assert not caplog.records
    assert capfd.readouterr() == ("", "")
    assert SECRET not in str(world.log.lines)
    await world.still_works()


async def test_what_a_web_page_sends_is_refused(make_world: Any) -> None:
    secret, line = new_token(ClientRanges.parse("0-9"))
    for world in (await make_world(), await make_world(access=Access.from_lines([line]))):
        async with peer(world, joins=False, token=secret) as page:
            page.headers["Origin"] = "http://localhost"
            for method, path in (("GET", "/health"), ("POST", "/join"), ("GET", "/outbox")):
                assert await page.request(method, path) == 403
        assert world.server.rejected == {"origin": 3}


LOOPBACK = ("127.0.0.1", "127.9.9.9:81", "LocalHost:81", "[::1]:81")
OTHER = (
    *("evil.example", "localhost.evil.example:8470", "127.0.0.1.evil.example", "localhost@evil.example"),
    *("192.168.0.1:8470", "0.0.0.0:8470", "[::1", "", None),
)


async def test_without_tokens_a_server_is_called_by_a_loopback_name(make_world: Any) -> None:
    _, line = new_token(ClientRanges.parse("0-9"))
    for access in (Access.open(), Access.from_lines([line])):
        world = await make_world(access=access)
        for host in (*LOOPBACK, *OTHER):
            request = "HTTP/1.0\r\n" if host is None else f"HTTP/1.1\r\nHost: {host}\r\n"
            (_, status, *_) = (await say(world, f"GET /health {request}\r\n".encode())).split()
            assert int(status) == (421 if access.is_open and host in OTHER else 200), host
        assert world.server.rejected["host"] == (len(OTHER) if access.is_open else 0)


async def test_a_process_that_calls_the_server_by_another_name_is_told(world: Any) -> None:
    with (
        patch("fedsim.bus.http.requests.open_http", partial(_called, "evil.example")),
        pytest.raises(UserError, match="answers only who calls it by a loopback name"),
    ):
        await world.join()


def _called(name: str, *arguments: Any) -> aiohttp.ClientSession:
    http = open_http(*arguments)
    http.headers["Host"] = name
    return http


@pytest.mark.parametrize(("attempts", "most"), [(300, 20), pytest.param(10_000, 500, marks=pytest.mark.slow)])
async def test_a_crowd_of_connections(make_world: Any, attempts: int, most: int) -> None:
    """Connections that say nothing make way for each other, while somebody honest is served."""
    world = await make_world(max_handshakes=most - 5, max_connections=most)
    client = await world.join("0-8")
    crowd: list[asyncio.StreamWriter] = []
    silent: set[asyncio.Task[bytes]] = set()
    highest = 0
    async with world.echoing(client):
        for start in range(0, attempts, 50):
            for _ in range(50):
                reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
                crowd.append(writer)
                silent.add(task := asyncio.ensure_future(reader.read()))
                task.add_done_callback(silent.discard)
            world.ask(start % 9, start)
            assert (await world.taken()).header.dispatch == start
            highest = max(highest, world.server.connections.num_connections)
            await world.until(lambda: len(silent) <= most)
    assert most / 2 < highest <= most
    assert world.server.rejected["connections"] >= attempts - most
    assert world.server.attended(3)
    late = await world.join("9")  # a newcomer gets in, too
    world.ask(9, attempts)
    assert (await world.got(late)).header.dispatch == attempts
    for writer in crowd:
        writer.transport.abort()
    await world.until(lambda: not silent)
