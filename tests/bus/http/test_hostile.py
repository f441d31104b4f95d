"""Peers that do what they must not: each is counted, none stops the server, and memory stays bounded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from hashlib import sha256
from typing import Any
from unittest.mock import patch
from zlib import crc32

import aiohttp
import msgpack
import pytest

from fedsim.bus.http.access import Access, ClientRanges, new_token
from fedsim.bus.http.session import PROTOCOL, encode, header_values
from fedsim.bus.http.transfer import open_http
from fedsim.errors import UserError
from fedsim.wire import DEFAULT, ModelUpdate, pack

NAME = "0123456789abcdef" * 2
LARGE = 40_000


async def within(awaitable: Any, seconds: float = 60.0) -> Any:
    async with asyncio.timeout(seconds):
        return await awaitable


def hello(clients: str = "0-9", **values: Any) -> bytes:
    plain = {"proto": PROTOCOL, "session": NAME, "clients": clients, "last": 0, "base": 0, "ready": True}
    return encode("hello", **{**plain, **values})


def up(world: Any, client: int, dispatch: int = 0, num: int = 10) -> bytes:
    update = ModelUpdate.of(world.model(num), num_samples=1)
    return pack(update).frame(sender=client, receiver=-1, round=1, exchange="train").join()


class Peer:
    """Speaks the protocol by hand."""

    def __init__(
        self, world: Any, http: aiohttp.ClientSession, socket: aiohttp.ClientWebSocketResponse
    ) -> None:
        self.world, self.http, self.socket = world, http, socket

    async def say(self, data: bytes) -> None:
        with suppress(OSError):
            await self.socket.send_bytes(data)

    async def closed(self) -> int | None:
        """Read until the server closes; return the code."""
        while not self.socket.closed:
            message = await within(self.socket.receive())
            if message.type not in (aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT):
                break
        return self.socket.close_code

    async def heard(self) -> dict[str, Any]:
        message = await within(self.socket.receive())
        assert message.type is aiohttp.WSMsgType.BINARY, message
        unpacker = msgpack.Unpacker()
        unpacker.feed(message.data)
        return dict(unpacker.unpack())

    async def put(self, number: int, body: bytes, span: str, **headers: str) -> int:
        headers = {"Fedsim-Session": NAME, "Content-Range": span, **headers}
        url = f"{self.world.url}/blob/{number}"
        async with self.http.put(url, data=body, headers=headers) as response:
            return response.status


@asynccontextmanager
async def peer(world: Any, *, says_hello: bool = True, token: str = "") -> AsyncIterator[Peer]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        aiohttp.ClientSession(headers=headers) as http,
        http.ws_connect(f"{world.url}/bus", max_msg_size=0) as socket,
    ):
        made = Peer(world, http, socket)
        if says_hello:
            await made.say(hello())
            assert (await made.heard())["t"] == "welcome"
        yield made


async def still_works(world: Any) -> None:
    """Exchange something with an honest process."""
    client = await world.join("0-9")
    world.ask(5, 1000, num=LARGE)
    while True:
        delivery = await within(client.receive())
        if delivery.header.dispatch == 1000:
            break
    world.answer(client, delivery)
    answer = await within(world.server.receive())
    assert answer.header.dispatch == 1000


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"\xc1",
        b"\x80",
        bytes(range(7, 107)),
        b"\xdf\xff\xff\xff\xff",
        b"\xdd\xff\xff\xff\xff",
        b"\x91" * 5000,
        encode("hello"),
        encode("ack", n=1),
        encode("welcome", resumed=False, last=0, run=NAME, finished=False),
        hello(session="x"),
        hello(session=7),
        hello(clients="9-0"),
        hello(clients="0-" + "9" * 50),
        hello(clients="," * 1000),
        hello(last=-1),
        hello(extra=1),
        hello() + b"body",
        msgpack.packb({"t": "hello", b"x": 1}),
        b"\x82\xa1t\xa5hello\xa1t\xa5hello",
    ],
)
async def test_what_is_no_hello_closes_the_connection(make_world: Any, first: bytes) -> None:
    world = await make_world()
    async with peer(world, says_hello=False) as bad:
        await bad.say(first)
        assert await bad.closed() == aiohttp.WSCloseCode.POLICY_VIOLATION
    assert world.server.rejected["session"] == 1
    await still_works(world)


@pytest.mark.parametrize(
    "said",
    [
        b"\xc1",
        hello(),
        encode("refused", why="no"),
        encode("ack", n=1),
        encode("ack", n=2**60),
        encode("ack", n=True),
        encode("none", n=2, h=(0, -1, 1, "train", 0, 0, -1), a=0),
        encode("none", n=0, h=(0, -1, 1, "train", 0, 0, -1), a=0),
        encode("none", n=1, h=(0, 1, 1, "train", 0, 0, -1), a=0),
        encode("none", n=1, h=(0, -1, 1, "train", 0, 0), a=0),
        encode("none", n=1, h=(0, -1, 1, "t" * 257, 0, 0, -1), a=0),
        encode("none", n=1, h=(0, -1, 1, "train", 0, 0, 2**40), a=0),
        encode("none", n=1, h=(0, -1, 1, "train", 0, 0, -1), a=1),
        encode("send", n=1, h=(0, -1, 1, "train", 0, 0, -1), a=0, c=0) + bytes(70_000),
        encode("bad", n=1, why="x" * 2000),
    ],
)
async def test_what_breaks_the_rules_of_a_session_closes_it(make_world: Any, said: bytes) -> None:
    world = await make_world()
    async with peer(world) as bad:
        await bad.say(said)
        assert await bad.closed() == aiohttp.WSCloseCode.POLICY_VIOLATION
    assert world.server.rejected["session"] == 1
    await still_works(world)


async def test_text_and_oversized_messages_close_the_connection(make_world: Any) -> None:
    world = await make_world()
    async with peer(world) as bad:
        await bad.socket.send_str("hello")
        await bad.closed()
    async with peer(world) as bad:
        await bad.say(bytes(300_000))
        await bad.closed()
    assert world.server.rejected["session"] == 2
    await still_works(world)


async def test_answers_nobody_asked_for_are_dropped_and_counted(make_world: Any) -> None:
    world = await make_world()
    async with peer(world) as bad:
        await bad.say(encode("none", n=1, h=(3, -1, 1, "train", 0, 0, -1), a=0))
        await world.until(lambda: world.server.rejected["unasked"] == 1)
        world.ask(3)
        while (await bad.heard())["t"] != "send":
            pass
        other_round = (3, -1, 2, "train", 0, 0, -1)
        await bad.say(encode("none", n=2, h=other_round, a=1))
        frame = up(world, 3)
        header = header_values(world.down(3).reply())
        await bad.say(encode("send", n=3, h=header, a=1, c=crc32(frame)) + frame)
        answer = await within(world.server.receive())
        assert answer.header == world.down(3).reply()
        for number in (3, 1, 4):  # replayed, replayed, and under another number
            await bad.say(encode("send", n=number, h=header, a=1, c=crc32(frame)) + frame)
        await world.until(lambda: world.server.rejected["unasked"] == 2)
    assert world.server.rejected == {"unasked": 2, "route": 1}
    assert world.ledger.totals().frames_up == 1
    await still_works(world)


async def test_an_answer_that_cannot_be_read_is_entered_and_settled(make_world: Any) -> None:
    world = await make_world()
    async with peer(world) as bad:
        spoilt = (up(world, 0)[:-1], b"\xc1" + up(world, 1)[1:], up(world, 9))
        for number, frame in enumerate(spoilt):
            world.ask(number)
            header = header_values(world.down(number).reply())
            await bad.say(encode("send", n=number + 1, h=header, a=0, c=crc32(frame)) + frame)
        await world.until(lambda: world.server.rejected["decode"] == 3)
        world.ask(5)
        frame = up(world, 5)
        await bad.say(encode("send", n=4, h=header_values(world.down(5).reply()), a=0, c=1) + frame)
        await world.until(lambda: world.server.rejected["decode"] == 4)
    assert world.ledger.outcomes() == {"in_flight": 0, "lost": 0, "undecodable": 4, "delivered": 4}
    assert not world.server._asked
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
    delivery = await within(client.receive())
    url, session = f"{world.url}/blob/1", client._session
    async with aiohttp.ClientSession() as http:
        for token, expected in ((other, 403), ("wrong", 401), (secret, 200)):
            headers = {"Authorization": f"Bearer {token}", "Fedsim-Session": session}
            async with http.head(url, headers=headers) as response:
                assert response.status == expected
    world.answer(client, delivery)
    assert (await within(world.server.receive())).header.sender == 2


async def test_answers_for_clients_of_others_are_refused(make_world: Any) -> None:
    world = await make_world()
    victim = await world.join("5-9")
    world.ask(7)
    delivery = await within(victim.receive())
    async with peer(world, says_hello=False) as bad:
        await bad.say(hello("0-4"))
        await bad.heard()
        await bad.say(encode("none", n=1, h=header_values(world.down(7).reply()), a=0))
        await world.until(lambda: world.server.rejected["client"] == 1)
    world.answer(victim, delivery)
    assert (await within(world.server.receive())).message is not None


@pytest.mark.parametrize(
    ("span", "body", "status"),
    [
        ("nonsense", bytes(100), 400),
        ("bytes 0-99/100", bytes(99), 400),
        ("bytes 0-99/50", bytes(100), 400),
        ("bytes 5-1/50", bytes(4), 400),
        ("bytes 0-9/10", bytes(10), 413),
        ("bytes 0-9/9999999999", bytes(10), 413),
        ("bytes 10-99/100", bytes(90), 409),
        ("bytes 0-99/100", bytes(100), 422),
    ],
)
async def test_blobs_that_are_not_what_they_say(make_world: Any, span: str, body: bytes, status: int) -> None:
    world = await make_world()
    async with peer(world) as bad:
        assert await bad.put(1, body, span) == status
        assert sum(other.upload_bytes for other in world.server._registry) == 0
        assert await bad.put(0, bytes(100), "bytes 0-99/100") == 410
        assert await bad.put(1 << 40, bytes(100), "bytes 0-99/100") == 410
        assert await bad.put(1, bytes(100), "bytes 0-99/100", **{"Fedsim-Session": "?"}) == 403
    await still_works(world)


async def test_a_notice_for_another_length_than_the_blobs(make_world: Any) -> None:
    world = await make_world()
    async with peer(world) as bad:
        blob = bytes(100)
        assert await bad.put(1, blob + sha256(blob).digest(), "bytes 0-131/132") == 204
        await bad.say(encode("blob", n=1, h=(0, -1, 1, "train", 0, 0, -1), a=0, b=101))
        assert await bad.closed() == aiohttp.WSCloseCode.POLICY_VIOLATION
    async with peer(world) as bad:  # and for a blob that is not there
        await bad.say(encode("blob", n=2, h=(0, -1, 1, "train", 0, 0, -1), a=0, b=101))
        await bad.closed()
    await still_works(world)


async def test_blobs_are_bounded_for_a_session_and_over_all(make_world: Any) -> None:
    small = replace(DEFAULT, frame_bytes=300_000)
    world = await make_world(frame=small, session_upload_bytes=500_000, upload_bytes=600_000)
    async with peer(world) as bad:
        statuses = [await bad.put(number, bytes(200_000), "bytes 0-199999/200001") for number in range(1, 5)]
        assert statuses == [204, 204, 204, 503]
        held = sum(other.upload_bytes for other in world.server._registry)
        assert held <= 500_000 + 131_072
    await still_works(world)
    assert world.server.rejected["full"] >= 1


async def test_a_flood_of_blobs_lets_go_of_those_nobody_is_at(make_world: Any) -> None:
    world = await make_world(upload_bytes=300_000, in_flight_uploads=8)
    async with peer(world) as bad:
        for number in range(1, 9):
            assert await bad.put(number, bytes(100_000), "bytes 0-99999/100001") == 204
            assert sum(other.upload_bytes for other in world.server._registry) <= 400_000
    assert world.server.rejected["evicted"] >= 4
    await still_works(world)


async def test_too_many_messages_close_the_connection(make_world: Any) -> None:
    world = await make_world(control_rate=0.1, control_burst=20)
    async with peer(world) as bad:
        for _ in range(40):
            await bad.say(encode("alive"))
        assert await bad.closed() == aiohttp.WSCloseCode.POLICY_VIOLATION
    assert world.server.rejected["session"] == 1
    assert any("messages per second" in str(line) for line in world.log.lines)
    await still_works(world)


async def test_answers_to_probes_nobody_asked(make_world: Any) -> None:
    world = await make_world()
    async with peer(world) as bad:
        await bad.say(encode("told", id=7, at=0, of=5) + b"12345")
        asking = asyncio.ensure_future(world.server.probe(3, b"?", 60.0))
        while (said := await bad.heard())["t"] != "ask":
            pass
        await bad.say(encode("told", id=said["id"], at=3, of=5) + b"45")
        await bad.closed()
        assert not asking.done()
    assert world.server.rejected["session"] == 1

    async def answer(number: int, question: bytes) -> bytes:
        return b"fine"

    client = world.client()
    client.on_probe(answer)
    await client.connect()
    assert await within(asking) == b"fine"


async def test_slow_strangers_are_turned_out(make_world: Any) -> None:
    world = await make_world(handshake_timeout_s=0.5)
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    writer.write(b"GET /bus HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
    with suppress(ConnectionError):
        assert await within(reader.read()) == b""
    writer.close()
    assert world.server.rejected["slow"] == 1
    async with peer(world, says_hello=False) as silent:  # a WebSocket, but no hello
        await silent.closed()
    assert world.server.rejected["slow"] == 2
    await world.until(lambda: world.server.num_connections == 0)


async def test_a_stalled_upload_gives_its_place_back(make_world: Any) -> None:
    world = await make_world(stall_timeout_s=0.05)
    async with peer(world):
        reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
        writer.write(
            b"PUT /blob/1 HTTP/1.1\r\nHost: localhost\r\nFedsim-Session: " + NAME.encode() + b"\r\n"
            b"Content-Range: bytes 0-9999/10000\r\nContent-Length: 10000\r\n\r\nabc"
        )
        with suppress(ConnectionError):
            await within(reader.read())
        writer.close()
        assert world.server.rejected["slow"] == 1
        (known,) = world.server._registry
        assert not known.uploads[1].is_busy
        assert known.upload_bytes == 3


@pytest.mark.parametrize(
    "garbage", [b"\x16\x03\x01\x02\x00\x01", b"\r\n" * 50, b"GET / HTTP/9.9\r\n\r\n", b"x" * 20_000]
)
async def test_what_is_no_http(make_world: Any, garbage: bytes) -> None:
    world = await make_world(handshake_timeout_s=0.5)
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    writer.write(garbage)
    said = b""
    with suppress(ConnectionError):
        said = await within(reader.read())
    assert said == b"" or said.startswith((b"HTTP/1.0 400", b"HTTP/1.1 400"))
    writer.close()
    await world.until(lambda: world.server.num_connections == 0)
    await still_works(world)


SECRET = "fedsim_do-not-tell"  # noqa: S105


@pytest.mark.parametrize(
    "malformed",
    [
        f"GET /bus HTTP/1.1\r\nHost: localhost\r\nAuthorization : Bearer {SECRET}\r\n\r\n",
        f"GET /{SECRET} HTTP/9.9\r\n\r\n",
        f"{SECRET}\r\n\r\n",
        f"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nG@T /{SECRET} HTTP/1.1\r\n\r\n",
        f"GET / HTTP/1.1\r\nHost: localhost\r\nX: {SECRET * 5000}\r\n\r\n",
        f"PUT /blob/1 HTTP/1.1\r\nHost: localhost\r\nFedsim-Session: {NAME}\r\n"
        f"Transfer-Encoding: chunked\r\nContent-Range: bytes 0-99/100\r\n\r\n{SECRET}\r\n",
    ],
)
async def test_malformed_http_is_counted_and_nothing_of_it_is_shown(
    make_world: Any,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    malformed: str,
) -> None:
    world = await make_world(handshake_timeout_s=0.2)
    caplog.set_level("DEBUG", "aiohttp")
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    writer.write(malformed.encode())
    with suppress(ConnectionError):
        await within(reader.read())
    writer.close()
    await world.until(lambda: world.server.num_connections == 0)
    assert sum(world.server.rejected.values()) >= 1
    assert not caplog.records
    assert capfd.readouterr() == ("", "")
    assert SECRET not in str(world.log.lines)


async def test_what_a_web_page_sends_is_refused(make_world: Any) -> None:
    secret, line = new_token(ClientRanges.parse("0-9"))
    for world in (await make_world(), await make_world(access=Access.from_lines([line]))):
        headers = {"Origin": "http://localhost", "Authorization": f"Bearer {secret}"}
        async with aiohttp.ClientSession(headers=headers) as http:
            for path in ("/bus", "/health", "/blob/1"):
                async with http.get(world.url + path) as response:
                    assert response.status == 403
            with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
                await http.ws_connect(f"{world.url}/bus")
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
        (_, said, *_) = (await within(reader.read())).split()
        assert int(said) == (status if access.is_open else 200)
        assert world.server.rejected["host"] == (access.is_open and status == 421)
        writer.close()


async def test_a_process_that_calls_the_server_by_another_name_is_told(make_world: Any) -> None:
    world = await make_world()
    client = world.client()
    with (
        patch("fedsim.bus.http.client.open_http", partial(_called, "evil.example")),
        pytest.raises(UserError, match="answers only who calls it by a loopback name"),
    ):
        await client.connect()


def _called(name: str, *arguments: Any) -> aiohttp.ClientSession:
    http = open_http(*arguments)
    http.headers["Host"] = name
    return http


@pytest.mark.parametrize(
    "path", ["/", "/blob/", "/blob/x", "/blob/1", "/bus", "/health/", "/blob/" + "9" * 40]
)
async def test_paths_that_lead_nowhere(make_world: Any, path: str) -> None:
    world = await make_world()
    async with aiohttp.ClientSession() as http, http.get(world.url + path) as response:
        assert response.status in (400, 403, 404)
    assert sum(world.server.rejected.values()) == 1


async def test_a_blob_of_another_answer_under_the_same_number(make_world: Any) -> None:
    world = await make_world()
    for number in range(2):
        world.ask(number)
    frames = [up(world, number) for number in range(2)]
    blobs = [frame + sha256(frame).digest() for frame in frames]
    span = f"bytes 0-{len(blobs[0]) - 1}/{len(blobs[0])}"
    assert len(blobs[0]) == len(blobs[1])
    async with peer(world) as one:
        assert await one.put(1, blobs[0], span, **{"Fedsim-Answer": "0-0"}) == 204
        header = header_values(world.down(1).reply())
        await one.say(encode("blob", n=1, h=header, a=0, b=len(frames[0])))
        await one.closed()  # what is here is another answer, so this one has to come (again)
    async with peer(world) as two:
        url, names = f"{world.url}/blob/1", {"Fedsim-Session": NAME, "Fedsim-Answer": "1-0"}
        async with two.http.head(url, headers=names) as response:
            assert response.headers["Fedsim-Held"] == "0"
        assert await two.put(1, blobs[1], span, **{"Fedsim-Answer": "1-0"}) == 204
        await two.say(encode("blob", n=1, h=header, a=0, b=len(frames[1])))
        assert (await within(world.server.receive())).header.sender == 1
    assert world.server.rejected["decode"] == 0


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
        assert (await within(world.server.receive())).header.dispatch == start
        highest = max(highest, world.server.num_connections)
        await world.until(lambda: crowd.ended >= crowd.begun - most)
    assert most / 2 < highest <= most
    assert world.server.rejected["connections"] >= attempts - most
    assert world.server.attended(3)
    echoing.cancel()
    late = await world.join("9")  # a newcomer gets in, too
    await within(world.server.attendance([9]))
    world.ask(9, attempts)
    assert (await within(late.receive())).header.dispatch == attempts
    crowd.go()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.sleep(0.02)


async def echo(world: Any, client: Any) -> None:
    while True:
        world.answer(client, await client.receive())
