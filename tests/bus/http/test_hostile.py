"""Peers that do what they must not: each is counted, and none stops the server."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fedsim.bus.http.access import Access, ClientRanges, new_token
from fedsim.bus.http.messages import MAX_TEXT, PROTOCOL, Entry
from fedsim.errors import UserError
from fedsim.wire import DEFAULT
from tests.bus.http.peer import HAS_NOTHING, NAME, SPENT, joining, peer, reply, up, whole

JOINS = {
    "nothing": b"",
    "no entry": b"\xc1",
    "another entry": whole("k"),
    "no secret": joining(secret=""),
    "no lower case": joining(secret=NAME.upper()),
    "too long a secret": joining(secret=NAME + "0"),
    "a body that is too long": whole("j", NAME, "", body=bytes(17 << 20))[:100],
}
CLIENTS = ("", "9-0", "0-" + "9" * 50, "," * 1000, "\udcff", "0-10")


async def test_what_is_no_request_to_join_is_refused(world: Any) -> None:
    for why, message in JOINS.items():
        async with peer(world, joins=False) as bad:
            await bad.say(message, HAS_NOTHING)
            assert await bad.is_cut(), why
    assert world.server.rejected == {"protocol": len(JOINS)}
    for clients in CLIENTS:
        async with peer(world, joins=False) as bad:
            await bad.say(whole("j", NAME, "", body=clients.encode("utf-8", "surrogateescape")), HAS_NOTHING)
            assert "client" in (await bad.heard("x")).values[0]
    assert world.server.rejected["refused"] == len(CLIENTS)
    assert world.server.status()["sessions"] == 0
    await world.still_works()


async def test_what_is_no_list_of_dispatches_is_refused(world: Any) -> None:
    for message in (whole("k"), whole("o", body=bytes(12))):
        async with peer(world, joins=False) as bad:
            await bad.say(joining(), message)
            assert await bad.is_cut()
    assert world.server.rejected == {"protocol": 2}
    async with peer(world, joins=False) as odd:  # numbers of dispatches that there are not
        await odd.say(joining(), whole("o", body=bytes(range(160))))
        await odd.heard("h")
    assert world.server.rejected == {"protocol": 2}


async def test_who_connects_and_says_nothing_is_turned_out(world: Any) -> None:
    async with peer(world, joins=False) as slow:
        assert await slow.is_cut()
    assert world.server.rejected == {"slow": 1}


MESSAGES = {  # and what else is no entry: test_messages.py
    "no entry": [b"\xc1"],
    "an entry of the server's": [whole("t", 0, 0)],
    "a second join": [joining()],
    "a second list": [HAS_NOTHING],
    "a frame that is too long": [whole("r", 0, 0, SPENT, None, body=bytes(70_000))[:100]],
    "more than was announced": [whole("r", 0, 0, SPENT, None, body=bytes(50))[:60], bytes(60_000)],
    "a message that is too long": [bytes(1 << 20)],
}


async def test_what_is_no_entry_ends_the_connection(make_world: Any) -> None:
    world = await make_world(frame=replace(DEFAULT, frame_bytes=60_000))
    for why, messages in MESSAGES.items():
        async with peer(world) as bad:
            await bad.say(*messages)
            assert await bad.is_cut(), why
    async with peer(world) as bad:
        await bad.socket.send_str("text")
        assert await bad.is_cut()
    assert world.server.rejected == {"protocol": len(MESSAGES) + 1}
    await world.until(lambda: not world.server.is_connected(0))
    honest = await world.join()
    assert (await world.asked(honest)).header.client == 0


async def test_replies_nobody_asked_for_are_dropped_and_counted(world: Any) -> None:
    async with peer(world) as bad:
        await bad.say(reply(world, 3))
        assert (await bad.heard("t")).values == (3, 0)
        assert world.server.rejected == {"unasked": 1}
        await bad.asked(3)
        await bad.say(reply(world, 3), reply(world, 3), reply(world, 3, 1), reply(world, 3))
        assert (await world.taken()).header == world.down(3).reply()
        for _ in range(4):
            await bad.heard("t")
        await bad.say(whole("c", 3, 7), whole("c", 99, 0), whole("s", 7, True, body=b"12345"), whole("a"))
        await bad.say(reply(world, 3))
        await bad.heard("t")
    assert world.server.rejected == {"unasked": 2, "repeated": 3}
    assert world.ledger.totals().frames_up == 1


async def test_a_reply_that_cannot_be_read_is_entered_and_settled(world: Any) -> None:
    async with peer(world) as bad:
        await bad.asked(0, 1, 2)
        spoilt = (up(world, 0)[:-1], b"\xc1" + up(world, 1)[1:], up(world, 9))
        await bad.say(*(reply(world, number, frame=frame) for number, frame in enumerate(spoilt)))
        await bad.asked(3, 4)  # but for notes that are none the reply is taken
        notes = ("no JSON", '[["error", "x", {}]]')
        await bad.say(*(whole("r", 3 + number, 0, SPENT, text) for number, text in enumerate(notes)))
        assert await world.senders(2) == [3, 4]
        await bad.asked(5)
        await bad.say(reply(world, 5, frame=b""))
        await world.until(lambda: world.server.rejected["decode"] == 4)
    assert world.server.rejected == {"decode": 4, "note": 2}
    assert world.ledger.outcomes() == {"in_flight": 0, "lost": 0, "undecodable": 4, "delivered": 6}
    assert not world.num_open


async def test_tokens(make_world: Any, tmp_path: Path) -> None:
    secret, line = new_token(ClientRanges.parse("0-4"))
    other, other_line = new_token(ClientRanges.parse("0-9"))
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
    assert world.server.rejected == {"access": 2, "refused": 1}
    async with peer(world, clients="0-4", token=secret):
        session = world.server._sessions[NAME]
        assert session.token == secret
        assert secret not in repr(session) + str(world.log.lines)
        assert NAME not in str(world.log.lines)
        async with peer(world, joins=False, token=other) as thief:
            await thief.say(joining("0-4"), HAS_NOTHING)
            assert "another process" in (await thief.heard("x")).values[0]
        assert world.server.is_connected(0)


async def test_replies_of_clients_of_others_are_refused(world: Any) -> None:
    victim = await world.join("5-9")
    delivery = await world.asked(victim, 7)
    async with peer(world, clients="0-4") as bad:
        await bad.say(reply(world, 7), whole("u", 7, 0, "spoilt"), whole("c", 7, 0))
        for _ in range(2):
            await bad.heard("t")
    assert world.server.rejected == {"client": 2}
    world.reply(victim, delivery)
    assert (await world.taken()).message is not None


async def test_other_requests_are_refused(world: Any) -> None:
    headers = {"Fedsim-Protocol": str(PROTOCOL)}
    async with aiohttp.ClientSession() as http:
        for method, path, status, cause in (
            ("GET", "/", 404, "path"),
            ("POST", "/session", 404, "path"),
            ("GET", "/health/", 404, "path"),
            ("GET", "/session", 400, "http"),  # no handshake of a WebSocket
        ):
            before = world.server.rejected[cause]
            async with http.request(method, world.url + path, headers=headers) as response:
                assert (response.status, response.headers["Fedsim-Protocol"]) == (status, str(PROTOCOL))
            assert world.server.rejected[cause] == before + 1
        async with http.get(world.url + "/session", headers={"Fedsim-Protocol": "5"}) as response:
            assert response.status == 400
    assert world.server.rejected["protocol"] == 1


async def test_any_reason_can_be_given(world: Any) -> None:
    client = await world.join()
    await client.close(why="\ud800\x1b" + "x" * 2 * MAX_TEXT)
    (left,) = world.log.of("process left")
    assert left["why"].startswith("??xxx")


async def test_what_is_said_of_an_emulation_where_there_is_none_ends_the_connection(world: Any) -> None:
    async with peer(world) as bad:
        await bad.say(whole("m", "reply", 0, 0, 0, 0, body=b"it"))
        assert await bad.is_cut()
    assert world.server.rejected == {"protocol": 1}
    await world.still_works()


async def test_only_a_clients_host_speaks_of_it_in_an_emulation(world: Any) -> None:
    heard: list[Entry] = []
    world.server.heard = heard.append
    async with peer(world, clients="0-4") as bad:
        await bad.say(whole("m", "had", 3, 0, 0, 0), whole("m", "had", 5, 0, 0, 0))
        assert await bad.is_cut()
    assert [found.values for found in heard] == [("had", 3, 0, 0, 0)]
    assert world.server.rejected == {"protocol": 1}
    await world.still_works()
