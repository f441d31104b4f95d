"""What is no HTTP, and what web pages say: refused, counted, and not shown."""

from typing import Any

import aiohttp
import pytest

from fedsim.bus.http.access import Access, ClientRanges, new_token
from tests.bus.http.peer import say

SECRET = "fedsim_do-not-tell"  # noqa: S105
MALFORMED = {
    "a space before a colon": f"GET /session HTTP/1.1\r\nHost: a\r\nAuthorization : Bearer {SECRET}\r\n\r\n",
    "another version": f"GET /{SECRET} HTTP/9.9\r\n\r\n",
    "no request": f"{SECRET}\r\n\r\n",
    "no method": f"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nG@T /{SECRET} HTTP/1.1\r\n\r\n",
    "a long header": f"GET / HTTP/1.1\r\nHost: localhost\r\nX: {SECRET * 5000}\r\n\r\n",
    "TLS": "\x16\x03\x01\x02\x00\x01",
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
        page = {"Authorization": f"Bearer {secret}", "Origin": "http://localhost"}
        async with aiohttp.ClientSession(headers=page) as http:
            for path in ("/health", "/session"):
                async with http.get(world.url + path) as response:
                    assert response.status == 403
        assert world.server.rejected == {"origin": 2, **({"host": len(OTHER)} if access.is_open else {})}
