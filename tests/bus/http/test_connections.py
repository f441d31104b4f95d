"""Connections that say nothing, no HTTP, or what web pages say: closed, counted, and not shown."""

import asyncio
from typing import Any

import pytest

from fedsim.bus.http.access import Access, ClientRanges, new_token
from fedsim.processes.addresses_and_tls import client_tls, server_tls
from tests.bus.http.peer import NAME, peer, say
from tests.conftest import Certify


async def test_slow_peers_are_turned_out(world: Any) -> None:
    await say(world, b"GET /outbox HTTP/1.1\r\nX-Slow: ")
    await say(world, b"POST /join HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n")
    assert world.server.rejected["slow"] == 2
    async with peer(world) as bad:
        await bad.asked(0)
        writer = await bad.begin_put(10_000)
        await world.until(lambda: world.upload_bytes == 10_000)
        await world.until(lambda: world.upload_bytes == 0)
        writer.close()
        assert world.server.rejected["slow"] == 3
    await world.until(lambda: world.server.connections.num_connections == 0)


SECRET = "fedsim_do-not-tell"  # noqa: S105
MALFORMED = {
    "a space before a colon": f"GET /outbox HTTP/1.1\r\nHost: a\r\nAuthorization : Bearer {SECRET}\r\n\r\n",
    "another version": f"GET /{SECRET} HTTP/9.9\r\n\r\n",
    "no request": f"{SECRET}\r\n\r\n",
    "no method": f"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nG@T /{SECRET} HTTP/1.1\r\n\r\n",
    "a long header": f"GET / HTTP/1.1\r\nHost: localhost\r\nX: {SECRET * 5000}\r\n\r\n",
    "a bad chunk": f"PUT /dispatch/0/0 HTTP/1.1\r\nHost: localhost\r\nFedsim-Session: {NAME}\r\n"
    f"Transfer-Encoding: chunked\r\n\r\n{SECRET}\r\n",
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


LOOPBACK = ("127.0.0.1", "127.9.9.9:81", "LocalHost:81", "[::1]:81")
OTHER = (
    *("evil.example", "localhost.evil.example:8470", "127.0.0.1.evil.example", "localhost@evil.example"),
    *("192.168.0.1:8470", "0.0.0.0:8470", "[::1", "", None),
)


async def test_web_pages_are_refused_and_without_tokens_all_but_loopback_names(make_world: Any) -> None:
    secret, line = new_token(ClientRanges.parse("0-9"))
    for access in (Access.open(), Access.from_lines([line])):
        world = await make_world(access=access)
        for host in (*LOOPBACK, *OTHER):
            request = "HTTP/1.0\r\n" if host is None else f"HTTP/1.1\r\nHost: {host}\r\n"
            (_, status, *_) = (await say(world, f"GET /health {request}\r\n".encode())).split()
            assert int(status) == (421 if access.is_open and host in OTHER else 200), host
        async with peer(world, joins=False, token=secret) as page:
            page.headers["Origin"] = "http://localhost"
            for method, path in (("GET", "/health"), ("POST", "/join"), ("GET", "/outbox")):
                assert await page.request(method, path) == 403
        assert world.server.rejected == {"origin": 3, **({"host": len(OTHER)} if access.is_open else {})}


@pytest.mark.parametrize(
    ("attempts", "most", "is_encrypted"),
    [(300, 20, False), (100, 20, True), pytest.param(10_000, 500, False, marks=pytest.mark.slow)],
)
async def test_a_crowd_of_connections(
    make_world: Any, certify: Certify, attempts: int, most: int, is_encrypted: bool
) -> None:
    """Connections that say nothing, not even a TLS handshake, make way, while somebody honest is served."""
    encrypt = server_tls(*certify("server")) if is_encrypted else None
    trusted = client_tls(certify("server")[0]) if is_encrypted else None
    world = await make_world(max_handshakes=most - 5, max_connections=most, encrypt=encrypt)
    client = await world.join("0-8", ssl=trusted)
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
            await world.until(lambda: len(silent) <= most - 5)
    assert most / 2 < highest <= most
    assert world.server.rejected["connections"] >= attempts - most
    assert world.server.attended(3)
    late = await world.join("9", ssl=trusted)  # a newcomer gets in, too
    assert (await world.asked(late, 9, attempts)).header.dispatch == attempts
    await world.until(lambda: not silent)  # those that are left are turned out when their time is up
    for writer in crowd:
        writer.transport.abort()
