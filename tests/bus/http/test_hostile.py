"""Peers that do what they must not: each is counted, none stops the server, and memory stays bounded."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from fedsim.bus.http.access import Access, ClientRanges, new_token
from fedsim.bus.http.messages import entry
from fedsim.errors import UserError
from fedsim.wire import DEFAULT
from tests.bus.http.peer import LARGE, NAME, SPENT, hello, large, peer, small, up

JOINS = {
    "nothing": b"",
    "no text": b"\xff",
    "no object": b"7",
    "nested": b"[" * 100_000,
    "an empty object": b"{}",
    "no clients": b'{"protocol": 3}',
    "clients that are no text": hello(clients=7),
    "clients downwards": hello(clients="9-0"),
    "clients without end": hello(clients="0-" + "9" * 50),
    "commas": hello(clients="," * 1000),
    "a protocol that is no number": hello(protocol="3"),
}


async def test_what_is_no_request_to_join_is_refused(world: Any) -> None:
    async with peer(world, joins=False) as bad:
        for why, body in JOINS.items():
            assert await bad.request("POST", "/join", body) == 400, why
        for secret in ("", "x", NAME.upper(), NAME + "0"):
            bad.headers["Fedsim-Session"] = secret
            assert await bad.request("POST", "/join", hello()) == 400, secret
    assert world.server.rejected == {"protocol": len(JOINS) + 4}
    assert world.server.status()["sessions"] == 0
    await world.still_works()


BODIES = {  # and what else is no entry: test_messages.py
    "no entry": b"\xc1",
    "an entry of the server's": entry("a"),
    "another checksum": entry("r", 0, 0, SPENT, None, body=b"xy")[:-1] + b"z",
    "a frame that is too long to come with others": entry("r", 0, 0, SPENT, None, body=bytes(70_000)),
    "half an entry": entry("u", 0, 0, "why")[:-1],
}
NOWHERE = [
    *(("POST", f"/replies{query}", 400) for query in ("", "?had=0", "?had=9&ready=1", "?had=-1&ready=1")),
    *(("GET", f"/outbox{query}", 400) for query in ("", "?after=9&ready=1", "?after=x&ready=1", "?after=0")),
    *(("GET", path, 404) for path in ("/", "/dispatch/1", "/dispatch/1/x", "/health/", "/replies")),
    *((method, f"/dispatch/0/{'9' * 10}", 410) for method in ("GET", "PUT")),
    *(("DELETE", "/dispatch/0/0", 404), ("GET", "/query/1", 404), ("PUT", f"/query/{'9' * 17}", 404)),
    ("PUT", "/query/7", 410),
]
LARGE_REPLIES = {
    "shorter than a digest": (bytes(10), 413),
    "another digest": (bytes(100), 422),
    "no tail": (bytes(99) + b"\xff\xff" + sha256(bytes(99) + b"\xff\xff").digest(), 400),
}


async def test_what_leads_nowhere_is_refused_and_counted(world: Any) -> None:
    async with peer(world) as bad:
        for why, body in BODIES.items():
            assert await bad.replies(body) == 400, why
        assert world.server.rejected == {"protocol": len(BODIES)}
        for path in ("/replies?had=0&ready=1", "/join", "/leave"):
            assert await bad.request("POST", path, bytes(300_000)) in (0, 413), path
        assert world.server.rejected["size"] == 3
        await bad.asked(0)
        for why, (body, status) in LARGE_REPLIES.items():
            assert await bad.put(body) == status, why
        assert await bad.put(large(world, 1)) == 400  # the reply to another one
        (await bad.begin_put(9_999_999_999)).close()
        await world.until(lambda: world.server.rejected["size"] == 5)  # longer than a frame may be
        for method, path, status in NOWHERE:
            bad.headers["Fedsim-Session"] = NAME
            assert await bad.request(method, path) == status, (method, path)
            bad.headers["Fedsim-Session"] = "?"
            assert await bad.request(method, path) == 403, (method, path)
    assert world.server.rejected["session"] == len(NOWHERE)
    await world.still_works()


async def test_replies_nobody_asked_for_are_dropped_and_counted(world: Any) -> None:
    async with peer(world) as bad:
        assert await bad.replies(small(world, 3)) == 204
        assert world.server.rejected == {"unasked": 1}
        await bad.asked(3)
        body = small(world, 3)
        assert await bad.replies(body * 2 + small(world, 3, 1), "had=1&ready=1") == 204
        assert (await world.taken()).header == world.down(3).reply()
        assert await bad.replies(body) == 204
        assert await bad.put(bytes(40), 3) == 410
    assert world.server.rejected == {"unasked": 2, "repeated": 3}
    assert world.ledger.totals().frames_up == 1
    await world.still_works()


async def test_a_reply_that_cannot_be_read_is_entered_and_settled(world: Any) -> None:
    async with peer(world) as bad:
        await bad.asked(0, 1, 2)
        spoilt = (up(world, 0)[:-1], b"\xc1" + up(world, 1)[1:], up(world, 9))
        body = b"".join(small(world, number, frame=frame) for number, frame in enumerate(spoilt))
        assert await bad.replies(body) == 204
        await bad.asked(3, 4)  # but for notes that are none the reply is taken
        notes = ("no JSON", '[["error", "x", {}]]')
        body = b"".join(entry("r", 3 + number, 0, SPENT, text) for number, text in enumerate(notes))
        assert await bad.replies(body) == 204
        assert await world.senders(2) == [3, 4]
    assert world.server.rejected == {"decode": 3, "note": 2}
    assert world.ledger.outcomes() == {"in_flight": 0, "lost": 0, "undecodable": 3, "delivered": 5}
    assert not world.num_open
    await world.still_works()


async def test_tokens(make_world: Any, tmp_path: Path) -> None:
    secret, line = new_token(ClientRanges.parse("0-4"))
    other, other_line = new_token(ClientRanges.parse("5-9"))
    file = tmp_path / "tokens"
    file.write_text(f"{line}\n{other_line}\n")
    world = await make_world(access=Access.from_file(file))
    for clients, token, why in (
        ("0-4", None, "asks for a token"),
        ("0-4", secret + "x", "does not know this token"),
        ("3-5", secret, "grants the clients 0-4, not all of 3-5"),
    ):
        with pytest.raises(UserError, match=why):
            await world.join(clients, token=token)
    assert world.server.rejected["access"] == 2
    async with peer(world, joins=False, token=secret) as owner:
        assert await owner.request("POST", "/join", hello(clients="0-4")) == 200
        (session,) = world.server._sessions
        assert (session.secret, session.token) == (NAME, secret)
        assert NAME not in repr(session) + str(world.log.lines)
        assert secret not in repr(session) + str(world.log.lines)
    for token, status in ((other, 403), ("wrong", 401), (secret, 410)):
        async with peer(world, joins=False, token=token) as one:
            assert await one.request("GET", "/dispatch/2/0") == status, token


async def test_replies_of_clients_of_others_are_refused(world: Any) -> None:
    victim = await world.join("5-9")
    delivery = await world.asked(victim, 7, num=LARGE)
    async with peer(world, joins=False) as bad:
        assert await bad.request("POST", "/join", hello(clients="0-4")) == 200
        assert await bad.put(large(world, 7), 7) == 410
        assert await bad.request("GET", "/dispatch/7/0") == 410
        assert await bad.replies(small(world, 7)) == 204
    assert world.server.rejected == {"client": 3}
    world.reply(victim, delivery)
    assert (await world.taken()).message is not None


@pytest.mark.parametrize(
    "limits", [{"session_upload_bytes": 500_000}, {"upload_bytes": 500_000}], ids=["of one session", "of all"]
)
async def test_large_replies_are_bounded(make_world: Any, limits: dict[str, int]) -> None:
    """No more are read than fit; their room is free again once their connections are gone."""
    world = await make_world(frame=replace(DEFAULT, frame_bytes=600_000), **limits)
    async with peer(world) as bad:
        await bad.asked(0, 1)
        half = await bad.begin_put(400_000)
        await world.until(lambda: world.upload_bytes == 400_000)
        assert await bad.put(large(world, 1), 1) == 503
        half.transport.abort()
        await world.until(lambda: world.upload_bytes == 0)
        last = await bad.begin_put(600_000, 1)  # one of the longest length fits whatever the limit
        await world.until(lambda: world.upload_bytes == 600_000)
        last.transport.abort()
    assert world.server.rejected == {"full": 1}
    await world.still_works()


@pytest.mark.parametrize("is_retired", [False, True])
async def test_a_large_reply_that_is_not_asked_for_any_more_is_dropped(world: Any, is_retired: bool) -> None:
    """Its dispatch is settled, or its session is forgotten, while its bytes arrive."""
    may_go_on = asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield body[:1000]
        await may_go_on.wait()
        yield body[1000:]

    async with peer(world) as bad:
        await bad.asked(0)
        body = large(world, 0)
        sending = asyncio.ensure_future(
            bad.request("PUT", "/dispatch/0/0", slowly(), **{"Content-Length": str(len(body))})
        )
        await world.until(lambda: world.upload_bytes)
        (session,) = world.server._sessions
        if is_retired:
            world.server._sessions.retire(session, "it was away")
        else:
            assert await bad.replies(small(world, 0)) == 204
        may_go_on.set()
        assert await sending == (403 if is_retired else 410)
        if is_retired:
            session.abort()
    assert session.upload_bytes == 0
    assert world.ledger.totals().frames_up == (not is_retired)


async def test_a_frame_goes_with_its_reply_though_its_process_never_says_that_it_has_it(world: Any) -> None:
    async with peer(world) as bad:
        world.ask(0, num=LARGE)
        await bad.heard("d")
        assert await bad.request("GET", "/dispatch/0/0") == 200
        (session,) = world.server._sessions
        assert await bad.replies(small(world, 0), "had=0&ready=1") == 204
        await world.taken()
        (dispatch,) = session.unconfirmed
        assert (dispatch.frame, dispatch.packed) == (None, None)


async def test_too_many_requests_that_bring_nothing_are_turned_away(make_world: Any) -> None:
    world = await make_world(idle_rate=1e-9, idle_burst=20)
    async with peer(world) as one:
        # A process that hears no answer repeats all that it sent; however much, that counts once.
        await one.asked(*range(10))
        body = b"".join(small(world, number) for number in range(10))
        assert [await one.replies(body) for _ in range(6)] == [204] * 6
        assert [await one.replies(b"") for _ in range(20)] == [204] * 13 + [429] * 7  # and join and outbox
        world.ask(3, 1)
        await one.heard("d")
        assert await one.replies(small(world, 3, 1)) == 204  # what was asked for is taken all the same
    assert world.server.rejected == {"repeated": 50, "rate": 7}
    assert any("idle requests per second" in str(line) for line in world.log.lines)


async def test_bad_requests_count_as_idle_ones(make_world: Any) -> None:
    """The first two are to join and the outbox; what is refused is counted, whatever is wrong with it."""
    world = await make_world(idle_rate=1e-9, idle_burst=6)
    async with peer(world) as bad:
        found = [await bad.replies(b"\xc1"), await bad.request("GET", "/nowhere")]
        found += [await bad.put(b"", 7), await bad.request("PUT", "/query/7")]
        assert found == [400, 404, 410, 410]
        assert await bad.replies(b"\xc1") == 429
    assert world.server.rejected == {"protocol": 1, "path": 1, "unasked": 1, "rate": 1}


@pytest.mark.parametrize("is_large", [False, True])
async def test_a_reply_is_not_said_to_be_taken_by_a_session_that_is_forgotten(
    world: Any, is_large: bool
) -> None:
    """Its process would forget it, and drop the dispatch when that comes again."""
    async with peer(world) as good:
        await good.asked(0)
        (session,) = world.server._sessions

        async def forget(*_: Any) -> None:
            if session in world.server._sessions:
                world.server._sessions.retire(session, "it was away for too long")

        with patch.object(world.server._handlers, "_room", forget):
            reply = good.put(large(world, 0)) if is_large else good.replies(small(world, 0))
            assert await reply == 403
    await world.still_works()
    assert world.server.rejected["session"] == 1


async def test_too_many_requests_at_a_time_are_turned_away(make_world: Any) -> None:
    world = await make_world(transfers_at_once=1)
    async with peer(world) as bad:
        await bad.asked(0)
        slow = [await asyncio.open_connection("127.0.0.1", world.port) for _ in range(4)]
        for _, writer in slow:
            writer.write(f"POST /leave HTTP/1.1\r\nHost: localhost\r\nFedsim-Session: {NAME}\r\n".encode())
            writer.write(b"Content-Length: 9\r\n\r\n")
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
        assert await bad.replies(entry("s", 7, True, body=b"12345")) == 204
        asking = asyncio.ensure_future(world.server.probe(3, b"?", 60.0))
        number = (await bad.heard("q")).values[0]
        assert await bad.request("PUT", f"/query/{number}", bytes(101 + 16_384)) == 413
        assert not asking.done()
        assert await bad.replies(entry("s", number, True, body=b"fine")) == 204
    assert await world.within(asking) == b"fine"
