"""Peers that do what they must not: each is counted, none stops the server, and memory stays bounded."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from hashlib import sha256
from typing import Any
from unittest.mock import patch

import aiohttp
import pytest

from fedsim.bus.http.access import Access, ClientRanges, new_token
from fedsim.bus.http.messages import FROM_SERVER, PROTOCOL, Entry, Reader, Reply, entry
from fedsim.bus.http.requests import open_http
from fedsim.bus.http.transfers import Incoming
from fedsim.errors import UserError
from fedsim.wire import DEFAULT, Frame, ModelUpdate, pack

NAME = "0123456789abcdef" * 2
LARGE = 40_000
SPENT = (0.0, 0.0)


def hello(**values: Any) -> bytes:
    return json.dumps({"protocol": PROTOCOL, "clients": "0-9", **values}).encode()


def up(world: Any, client: int, num: int = 10) -> bytes:
    update = ModelUpdate.of(world.model(num), num_samples=1)
    return pack(update).frame(sender=client, receiver=-1, round=1, exchange="train").join()


def small(world: Any, client: int, dispatch: int = 0, frame: bytes | None = None) -> bytes:
    frame = up(world, client) if frame is None else frame
    return entry("r", client, dispatch, SPENT, None, body=frame)


def large(frame: bytes, client: int, dispatch: int = 0) -> bytes:
    whole = b"".join(Reply((client, dispatch), Frame(frame, len(frame)), SPENT).parts())
    return whole + sha256(whole).digest()


def span(body: bytes, start: int = 0, total: int | None = None) -> str:
    return f"bytes {start}-{start + len(body) - 1}/{total or len(body)}"


class Peer:
    """Makes requests by hand."""

    def __init__(self, world: Any, http: aiohttp.ClientSession) -> None:
        self.world, self.http = world, http
        self.headers = {"Fedsim-Session": NAME}
        self.reader = Reader(FROM_SERVER, 1 << 20)
        self.entries: list[Entry] = []
        self.outbox: aiohttp.ClientResponse

    async def request(self, method: str, path: str, body: bytes = b"", **headers: str) -> int:
        headers = {**self.headers, **headers}
        try:
            async with self.http.request(
                method, self.world.url + path, data=body, headers=headers
            ) as response:
                self.answer = await response.read()
                self.held = response.headers.get("Fedsim-Held")
                return response.status
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
            return 0

    async def replies(self, body: bytes, query: str = "had=0&ready=1") -> int:
        return await self.request("POST", f"/replies?{query}", body)

    async def put(self, body: bytes, place: str, path: str = "/dispatch/0/0", **headers: str) -> int:
        return await self.request("PUT", path, body, **{"Content-Range": place}, **headers)

    async def heard(self, letter: str) -> Entry:
        """Return the next entry of the outbox with this letter."""
        while True:
            while self.entries:
                if (found := self.entries.pop(0)).letter == letter:
                    return found
            self.entries += self.reader.feed(await self.world.within(self.outbox.content.readany()))


@asynccontextmanager
async def peer(world: Any, *, joins: bool = True, token: str = "") -> AsyncIterator[Peer]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with aiohttp.ClientSession(headers=headers) as http:
        made = Peer(world, http)
        if not joins:
            yield made
            return
        assert await made.request("POST", "/join", hello()) == 200
        async with http.get(f"{world.url}/outbox?after=0&ready=1", headers=made.headers) as made.outbox:
            yield made


async def still_works(world: Any) -> None:
    """Exchange something with an honest process."""
    client = await world.join("0-9")
    world.ask(5, 1000, num=LARGE)
    while True:
        delivery = await world.within(client.receive())
        if delivery.header.dispatch == 1000:
            break
    world.reply(client, delivery)
    answer = await world.within(world.server.receive())
    assert answer.header.dispatch == 1000


@pytest.mark.parametrize(
    ("body", "secret"),
    [
        *((body, NAME) for body in (b"", b"\xff", b"7", b"[" * 100_000, b"{}", b'{"protocol": 3}')),
        *((hello(**values), NAME) for values in ({"clients": 7}, {"clients": "9-0"}, {"protocol": "3"})),
        *((hello(clients=text), NAME) for text in ("0-" + "9" * 50, "," * 1000)),
        *((hello(), secret) for secret in ("", "x", NAME.upper(), NAME + "0")),
    ],
)
async def test_what_is_no_request_to_join_is_refused(make_world: Any, body: bytes, secret: str) -> None:
    world = await make_world()
    async with peer(world, joins=False) as bad:
        bad.headers["Fedsim-Session"] = secret
        assert await bad.request("POST", "/join", body) == 400
    assert world.server.rejected == {"protocol": 1}
    assert not len(world.server._sessions)
    await still_works(world)


@pytest.mark.parametrize(
    "body",
    [
        b"\xc1",
        entry("a"),
        entry("e", True, "over"),
        entry("d", 1, 0, 0, 1, "train", 0, -1, None),
        entry("r", 0, 0, SPENT),
        entry("r", -1, 0, SPENT, None),
        entry("r", 0, 2**31, SPENT, None),
        entry("r", 0, True, SPENT, None),
        entry("r", 0, 0, (0.0, -1.0), None),
        entry("r", 0, 0, (0.0, 2e9), None),
        entry("r", 0, 0, (0, 0.0), None),
        entry("r", 0, 0, SPENT, None, body=bytes(70_000)),
        entry("r", 0, 0, SPENT, None, body=b"xy")[:-1] + b"z",
        entry("u", 0, 0, "x" * 2000),
        entry("u", 0, 0, "why")[:-1],
    ],
)
async def test_what_are_no_replies_is_refused(make_world: Any, body: bytes) -> None:
    world = await make_world()
    async with peer(world) as bad:
        assert await bad.replies(body) == 400
    assert world.server.rejected == {"protocol": 1}
    await still_works(world)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        *(("POST", f"/replies{query}", 400) for query in ("", "?had=0", "?had=1&ready=1", "?had=-1&ready=1")),
        *(
            ("GET", f"/outbox{query}", 400)
            for query in ("", "?after=1&ready=1", "?after=x&ready=1", "?after=0")
        ),
        *(
            ("GET", path, 404)
            for path in ("/", "/dispatch/1", "/dispatch/1/x", "/health/", "/replies", "/query/1")
        ),
        *((method, f"/dispatch/0/{'9' * 10}", 410) for method in ("GET", "PUT")),
        *(("DELETE", "/dispatch/0/0", 404), ("PUT", "/query/7", 410), ("PUT", f"/query/{'9' * 17}", 404)),
    ],
)
async def test_requests_that_lead_nowhere(make_world: Any, method: str, path: str, status: int) -> None:
    world = await make_world()
    async with peer(world) as bad:
        assert await bad.request(method, path) == status
        bad.headers["Fedsim-Session"] = "?"
        assert await bad.request(method, path) == 403
    assert world.server.rejected["session"] == 1
    await still_works(world)


async def test_a_body_that_is_too_long_is_not_read(make_world: Any) -> None:
    world = await make_world()
    async with peer(world) as bad:
        for path in ("/replies?had=0&ready=1", "/join", "/leave"):
            assert await bad.request("POST", path, bytes(300_000)) in (0, 413)
    assert world.server.rejected == {"size": 3}
    await still_works(world)


async def test_replies_nobody_asked_for_are_dropped_and_counted(make_world: Any) -> None:
    world = await make_world()
    async with peer(world) as bad:
        assert await bad.replies(small(world, 3)) == 204
        assert world.server.rejected == {"unasked": 1}
        world.ask(3)
        await bad.heard("d")
        body = small(world, 3)
        assert await bad.replies(body * 2 + small(world, 3, 1), "had=1&ready=1") == 204
        assert (await world.within(world.server.receive())).header == world.down(3).reply()
        assert await bad.replies(body) == 204
        assert await bad.put(bytes(40), span(bytes(40)), "/dispatch/3/0") == 410
    assert world.server.rejected == {"unasked": 2, "repeated": 3}
    assert world.ledger.totals().frames_up == 1
    await still_works(world)


async def test_a_reply_that_cannot_be_read_is_entered_and_settled(make_world: Any) -> None:
    world = await make_world()
    async with peer(world) as bad:
        for number in range(3):
            world.ask(number)
        for _ in range(3):
            await bad.heard("d")
        spoilt = (up(world, 0)[:-1], b"\xc1" + up(world, 1)[1:], up(world, 9))
        body = b"".join(small(world, number, frame=frame) for number, frame in enumerate(spoilt))
        assert await bad.replies(body) == 204
    assert world.server.rejected == {"decode": 3}
    assert world.ledger.outcomes() == {"in_flight": 0, "lost": 0, "undecodable": 3, "delivered": 3}
    assert not world.server._dispatches
    await still_works(world)


async def test_tokens(make_world: Any) -> None:
    secret, line = new_token(ClientRanges.parse("0-4"))
    other, other_line = new_token(ClientRanges.parse("5-9"))
    world = await make_world(access=Access.from_lines([line, other_line]))
    with pytest.raises(UserError, match="asks for a token"):
        await world.join("0-4")
    with pytest.raises(UserError, match="does not know this token"):
        await world.join("0-4", token=secret + "x")
    with pytest.raises(UserError, match="grants the clients 0-4, not all of 3-5"):
        await world.join("3-5", token=secret)
    assert world.server.rejected["access"] == 2
    client = await world.join("0-4", token=secret)
    world.ask(2, num=LARGE)
    delivery = await world.within(client.receive())
    url = f"{world.url}/dispatch/2/0"
    async with aiohttp.ClientSession() as http:
        for token, expected in ((other, 403), ("wrong", 401), (secret, 206)):
            headers = {
                "Authorization": f"Bearer {token}",
                "Fedsim-Session": client._requests._headers["Fedsim-Session"],
            }
            headers["Range"] = "bytes=9-"
            async with http.get(url, headers=headers) as response:
                assert response.status == expected
    world.reply(client, delivery)
    assert (await world.within(world.server.receive())).header.sender == 2


async def test_replies_of_clients_of_others_are_refused(make_world: Any) -> None:
    world = await make_world()
    victim = await world.join("5-9")
    world.ask(7, num=LARGE)
    delivery = await world.within(victim.receive())
    async with peer(world, joins=False) as bad:
        assert await bad.request("POST", "/join", hello(clients="0-4")) == 200
        body = large(up(world, 7, LARGE), 7)
        assert await bad.put(body, span(body), "/dispatch/7/0") == 410
        assert await bad.request("GET", "/dispatch/7/0") == 410
        assert await bad.replies(small(world, 7)) == 204
    assert world.server.rejected == {"client": 3}
    world.reply(victim, delivery)
    assert (await world.within(world.server.receive())).message is not None


@pytest.mark.parametrize(
    ("place", "body", "status"),
    [
        ("nonsense", bytes(100), 400),
        ("bytes 0-99/100", bytes(99), 400),
        ("bytes 0-99/50", bytes(100), 400),
        ("bytes 5-1/50", bytes(4), 400),
        ("bytes 0-9/10", bytes(10), 413),
        ("bytes 0-9/9999999999", bytes(10), 413),
        ("bytes 10-99/100", bytes(90), 409),
        ("bytes */100", b"", 409),
        ("bytes 0-99/100", bytes(100), 422),
        ("bytes 0-132/133", bytes(99) + b"\xff\xff" + sha256(bytes(99) + b"\xff\xff").digest(), 400),
        ("bytes 0-31/33", bytes(32), 204),
    ],
)
async def test_large_replies_that_are_not_what_they_say(
    make_world: Any, place: str, body: bytes, status: int
) -> None:
    world = await make_world()
    async with peer(world) as bad:
        world.ask(0)
        await bad.heard("d")
        assert await bad.put(body, place) == status
    await still_works(world)


async def test_a_large_reply_to_another_dispatch_than_its_own(make_world: Any) -> None:
    world = await make_world()
    async with peer(world) as bad:
        world.ask(0)
        await bad.heard("d")
        body = large(up(world, 1, LARGE), 1)
        assert await bad.put(body, span(body)) == 400
        assert await bad.put(b"", f"bytes */{len(body)}") == 409
        assert bad.held == "0"
    await still_works(world)


async def test_a_whole_reply_whose_answer_was_lost_is_taken_by_the_next_request(make_world: Any) -> None:
    world = await make_world()
    async with peer(world) as bad:
        world.ask(0)
        await bad.heard("d")
        body = large(up(world, 0, LARGE), 0)
        with patch("fedsim.bus.http.transfers.Incoming.verified", side_effect=OSError):
            assert await bad.put(body, span(body)) in (0, 409)  # aiohttp may have tried again itself
        assert await bad.put(b"", f"bytes */{len(body)}") == 204
        assert (await world.within(world.server.receive())).header.sender == 0
        assert await bad.put(body, span(body)) == 410


async def test_large_replies_are_bounded_for_a_session_and_over_all(make_world: Any) -> None:
    few = replace(DEFAULT, frame_bytes=300_000)
    world = await make_world(frame=few, session_upload_bytes=500_000, upload_bytes=600_000)
    async with peer(world) as bad:
        for number in range(4):
            world.ask(number)
            await bad.heard("d")
        body = bytes(200_000)
        places = [f"/dispatch/{number}/0" for number in range(4)]
        statuses = [await bad.put(body, span(body, 0, 200_001), place) for place in places]
        assert statuses == [204, 204, 204, 204]  # nobody is at the first, which makes way
        held = sum(session.held_bytes for session in world.server._sessions)
        assert held <= 500_000 + 131_072
    await still_works(world)
    assert world.server.rejected["evicted"] >= 1


async def test_a_flood_of_large_replies_lets_go_of_those_nobody_is_at(make_world: Any) -> None:
    world = await make_world(upload_bytes=300_000)
    async with peer(world) as bad:
        for number in range(8):
            world.ask(number)
            await bad.heard("d")
            body = bytes(100_000)
            assert await bad.put(body, span(body, 0, 100_001), f"/dispatch/{number}/0") == 204
            assert sum(session.held_bytes for session in world.server._sessions) <= 400_000
    assert world.server.rejected["evicted"] >= 4
    await still_works(world)


async def test_too_many_requests_that_bring_nothing_are_turned_away(make_world: Any) -> None:
    world = await make_world(idle_rate=0.1, idle_burst=20)
    async with peer(world) as bad:
        statuses = [await bad.replies(b"") for _ in range(25)]
        assert statuses == [204] * 19 + [429] * 6  # and one for the outbox
        world.ask(3)
        await bad.heard("d")
        assert await bad.replies(small(world, 3)) == 204  # what was asked for is taken all the same
    assert world.server.rejected == {"rate": 6}
    assert any("idle requests per second" in str(line) for line in world.log.lines)


async def test_replies_that_are_repeated_count_once_for_a_request(make_world: Any) -> None:
    """A process that hears no answer repeats all that it sent; however much, that must get through."""
    world = await make_world(num_clients=10, idle_rate=0.1, idle_burst=5)
    async with peer(world) as good:
        for number in range(10):
            world.ask(number)
        for _ in range(10):
            await good.heard("d")
        body = b"".join(small(world, number) for number in range(10))
        assert [await good.replies(body) for _ in range(6)] == [204] * 5 + [429]
    assert world.server.rejected == {"repeated": 50, "rate": 1}


@pytest.mark.parametrize("is_large", [False, True])
async def test_a_reply_is_not_said_to_be_taken_by_a_session_that_is_forgotten(
    make_world: Any, is_large: bool
) -> None:
    """Its process would forget it, and drop the dispatch when that comes again."""
    world = await make_world()
    async with peer(world) as good:
        world.ask(0)
        await good.heard("d")
        (session,) = world.server._sessions

        async def forget(*_: Any) -> None:
            world.server._sessions.retire(session, "it was away for too long")

        if is_large:
            body = large(up(world, 0, LARGE), 0)
            assert await good.put(body[:-1], span(body[:-1], 0, len(body))) == 204
            verified = Incoming.verified

            async def forgotten(incoming: Incoming) -> Any:
                await forget()
                return await verified(incoming)

            with patch.object(Incoming, "verified", forgotten):
                assert await good.put(body[-1:], span(body[-1:], len(body) - 1, len(body))) == 403
        else:
            with patch.object(world.server._handlers, "_room", forget):
                assert await good.replies(small(world, 0)) == 403
    await still_works(world)
    assert world.server.rejected["session"] == 1


async def test_a_session_shows_no_secret(make_world: Any) -> None:
    token, line = new_token(ClientRanges.parse("0-9"))
    world = await make_world(access=Access.from_lines([line]))
    async with peer(world, token=token):
        (session,) = world.server._sessions
        assert (session.secret, session.token) == (NAME, token)
        assert NAME not in repr(session)
        assert token not in repr(session)


async def test_too_many_requests_at_a_time_are_turned_away(make_world: Any) -> None:
    world = await make_world(transfers_at_once=1)
    async with peer(world) as bad:
        world.ask(0)
        await bad.heard("d")
        slow = []
        for _ in range(4):
            slow.append(await asyncio.open_connection("127.0.0.1", world.port))
            slow[-1][1].write(
                f"POST /leave HTTP/1.1\r\nHost: localhost\r\nFedsim-Session: {NAME}\r\n".encode()
            )
            slow[-1][1].write(b"Content-Length: 9\r\n\r\n")
        (session,) = world.server._sessions
        await world.until(lambda: session.num_requests == 4)
        assert await bad.replies(small(world, 0)) == 429
        for _, writer in slow:
            writer.transport.abort()
        await world.until(lambda: session.num_requests == 0)
        assert await bad.replies(small(world, 0)) == 204
    assert world.server.rejected == {"requests": 1}


async def test_answers_to_questions_nobody_asked(make_world: Any) -> None:
    world = await make_world(frame=replace(DEFAULT, frame_bytes=100))
    async with peer(world) as bad:
        assert await bad.request("PUT", "/query/7", b"12345") == 410
        assert await bad.replies(entry("s", 7, True, body=b"12345")) == 204
        asking = asyncio.ensure_future(world.server.probe(3, b"?", 60.0))
        number = (await bad.heard("q")).values[0]
        body = bytes(101 + 16_384)
        assert await bad.put(body, span(body), f"/query/{number}") == 413
        assert not asking.done()

    async def answer(number: int, question: bytes) -> bytes:
        return b"fine"

    client = world.client()
    client.on_probe(answer)
    await client.connect()
    assert await world.within(asking) == b"fine"


async def test_slow_strangers_are_turned_out(make_world: Any) -> None:
    world = await make_world(handshake_timeout_s=0.1)
    for said in (
        b"GET /outbox HTTP/1.1\r\nX-Slow: ",
        b"POST /join HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n",
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
        writer.write(said)
        with suppress(ConnectionError):
            await world.within(reader.read())
        writer.close()
    assert world.server.rejected["slow"] == 2
    await world.until(lambda: world.server.num_connections == 0)


async def test_a_stalled_upload_gives_its_place_back(make_world: Any) -> None:
    world = await make_world(stall_timeout_s=0.05)
    async with peer(world) as bad:
        world.ask(0)
        await bad.heard("d")
        reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
        writer.write(
            b"PUT /dispatch/0/0 HTTP/1.1\r\nHost: localhost\r\nFedsim-Session: " + NAME.encode() + b"\r\n"
            b"Content-Range: bytes 0-9999/10000\r\nContent-Length: 10000\r\n\r\nabc"
        )
        with suppress(ConnectionError):
            await world.within(reader.read())
        writer.close()
        assert world.server.rejected["slow"] == 1
        (session,) = world.server._sessions
        assert not session.uploads[0, 0].is_busy
        assert session.held_bytes == 3


@pytest.mark.parametrize(
    "garbage", [b"\x16\x03\x01\x02\x00\x01", b"\r\n" * 50, b"GET / HTTP/9.9\r\n\r\n", b"x" * 20_000]
)
async def test_what_is_no_http(make_world: Any, garbage: bytes) -> None:
    world = await make_world(handshake_timeout_s=0.1)
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    writer.write(garbage)
    said = b""
    with suppress(ConnectionError):
        said = await world.within(reader.read())
    assert said == b"" or said.startswith((b"HTTP/1.0 400", b"HTTP/1.1 400"))
    writer.close()
    await world.until(lambda: world.server.num_connections == 0)
    await still_works(world)


SECRET = "fedsim_do-not-tell"  # noqa: S105


@pytest.mark.parametrize(
    "malformed",
    [
        f"GET /outbox HTTP/1.1\r\nHost: localhost\r\nAuthorization : Bearer {SECRET}\r\n\r\n",
        f"GET /{SECRET} HTTP/9.9\r\n\r\n",
        f"{SECRET}\r\n\r\n",
        f"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nG@T /{SECRET} HTTP/1.1\r\n\r\n",
        f"GET / HTTP/1.1\r\nHost: localhost\r\nX: {SECRET * 5000}\r\n\r\n",
        f"PUT /dispatch/0/0 HTTP/1.1\r\nHost: localhost\r\nFedsim-Session: {NAME}\r\n"
        f"Transfer-Encoding: chunked\r\nContent-Range: bytes 0-99/100\r\n\r\n{SECRET}\r\n",
    ],
)
async def test_malformed_http_is_counted_and_nothing_of_it_is_shown(
    make_world: Any,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    malformed: str,
) -> None:
    world = await make_world(handshake_timeout_s=0.1)
    caplog.set_level("DEBUG", "aiohttp")
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    writer.write(malformed.encode())
    with suppress(ConnectionError):
        await world.within(reader.read())
    writer.close()
    await world.until(lambda: world.server.num_connections == 0)
    assert sum(world.server.rejected.values()) >= 1
    assert not caplog.records
    assert capfd.readouterr() == ("", "")
    assert SECRET not in str(world.log.lines)


async def test_what_a_web_page_sends_is_refused(make_world: Any) -> None:
    secret, line = new_token(ClientRanges.parse("0-9"))
    for world in (await make_world(), await make_world(access=Access.from_lines([line]))):
        async with peer(world, joins=False, token=secret) as page:
            page.headers["Origin"] = "http://localhost"
            for method, path in (
                ("GET", "/health"),
                ("POST", "/join"),
                ("GET", "/outbox"),
                ("PUT", "/dispatch/0/0"),
            ):
                assert await page.request(method, path) == 403
        assert world.server.rejected == {"origin": 4}


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200),
        ("127.9.9.9:81", 200),
        ("LocalHost:81", 200),
        ("[::1]:81", 200),
        ("evil.example", 421),
        ("localhost.evil.example:8470", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost@evil.example", 421),
        ("192.168.0.1:8470", 421),
        ("0.0.0.0:8470", 421),
        ("[::1", 421),
        ("", 421),
        (None, 421),
    ],
)
async def test_without_tokens_a_server_is_called_by_a_loopback_name(
    make_world: Any, host: str | None, status: int
) -> None:
    _, line = new_token(ClientRanges.parse("0-9"))
    for access in (Access.open(), Access.from_lines([line])):
        world = await make_world(access=access)
        reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
        request = "HTTP/1.0\r\n" if host is None else f"HTTP/1.1\r\nHost: {host}\r\n"
        writer.write(f"GET /health {request}\r\n".encode())
        (_, said, *_) = (await world.within(reader.read())).split()
        assert int(said) == (status if access.is_open else 200)
        assert world.server.rejected["host"] == (access.is_open and status == 421)
        writer.close()


async def test_a_process_that_calls_the_server_by_another_name_is_told(make_world: Any) -> None:
    world = await make_world()
    client = world.client()
    with (
        patch("fedsim.bus.http.requests.open_http", partial(_called, "evil.example")),
        pytest.raises(UserError, match="answers only who calls it by a loopback name"),
    ):
        await client.connect()


def _called(name: str, *arguments: Any) -> aiohttp.ClientSession:
    http = open_http(*arguments)
    http.headers["Host"] = name
    return http


class Crowd:
    """Connections that say nothing: each is opened, and given up once the server has closed it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.begun = self.ended = 0
        self._stays = asyncio.Event()

    async def one(self) -> None:
        self.begun += 1
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        closed = asyncio.ensure_future(reader.read())
        staying = asyncio.ensure_future(self._stays.wait())
        await asyncio.wait((closed, staying), return_when=asyncio.FIRST_COMPLETED)  # noqa: TID251
        self.ended += closed.done()
        for task in (closed, staying):
            task.cancel()
        await asyncio.gather(closed, staying, return_exceptions=True)
        writer.transport.abort()

    def go(self) -> None:
        self._stays.set()


@pytest.mark.parametrize(("attempts", "most"), [(300, 20), pytest.param(10_000, 500, marks=pytest.mark.slow)])
async def test_a_crowd_of_connections(make_world: Any, attempts: int, most: int) -> None:
    world = await make_world(max_handshakes=most - 5, max_connections=most)
    client = await world.join("0-8")
    echoing = asyncio.ensure_future(echo(world, client))
    crowd, tasks, highest = Crowd(world.port), list[asyncio.Task[None]](), 0
    for start in range(0, attempts, 50):
        tasks += [asyncio.ensure_future(crowd.one()) for _ in range(50)]
        world.ask(start % 9, start)  # and somebody honest is served all the while
        assert (await world.within(world.server.receive())).header.dispatch == start
        highest = max(highest, world.server.num_connections)
        await world.until(lambda: crowd.ended >= crowd.begun - most)
    assert most / 2 < highest <= most
    assert world.server.rejected["connections"] >= attempts - most
    assert world.server.attended(3)
    echoing.cancel()
    late = await world.join("9")  # a newcomer gets in, too
    await world.within(world.server.attendance([9]))
    world.ask(9, attempts)
    assert (await world.within(late.receive())).header.dispatch == attempts
    crowd.go()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.sleep(0.02)


async def echo(world: Any, client: Any) -> None:
    while True:
        world.reply(client, await client.receive())
