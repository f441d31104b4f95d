"""What a client process says to a person, and what it does not send."""

from typing import Any
from unittest.mock import patch

import pytest

from fedsim.bus.http.messages import entry
from fedsim.errors import DecodeError, FileError, RunError
from fedsim.wire import Limits


async def test_a_person_is_told_once_of_a_server_that_is_away_and_when_it_is_back(world: Any) -> None:
    proxy, told = await world.proxy(), list[str]()
    client = await world.join(url=proxy.url, tell=told.append)
    there, proxy.target = proxy.target, 1  # where nobody listens
    proxy.reset_all()
    await world.until(lambda: told)
    assert told[0].startswith(f"no connection to {proxy.url} (")
    assert told[0].endswith("): trying again, for 600 s at most")
    attempts = proxy.accepted
    await world.until(lambda: proxy.accepted > attempts + 3)
    assert len(told) == 1
    proxy.target = there
    await world.until(lambda: len(told) > 1)
    assert told[1:] == [f"connected to {proxy.url}"]
    async with world.echoing(client):
        world.ask(0)
        await world.taken()


async def test_a_short_break_is_not_told(world: Any) -> None:
    proxy, told = await world.proxy(), list[str]()
    client = await world.join(url=proxy.url, tell=told.append, jitter=lambda: 0.5)
    proxy.reset_all()
    async with world.echoing(client):
        world.ask(0)
        await world.taken()
    assert told == []


async def test_many_ranges_of_clients(make_world: Any) -> None:
    world = await make_world(num_clients=80_000)
    await world.join(",".join(str(2 * number) for number in range(40_000)))
    await world.within(world.server.wait_for_clients([0, 79_998]))
    assert not world.server.is_connected(1)


async def test_an_answer_that_is_longer_than_a_frame_may_be_is_not_sent(make_world: Any) -> None:
    world = await make_world(frame=Limits(frame_bytes=100_000))
    client = await world.join()
    lengths = iter((100_000, 100_001))

    async def answer(number: int, question: bytes) -> bytes:
        return bytes(next(lengths))

    client.prober = answer
    assert await world.server.probe(0, b"?", 60.0) == bytes(100_000)
    with pytest.raises(RunError, match="an answer of 100001 bytes: the limit is 100000"):
        await world.server.probe(0, b"?", 60.0)


async def test_a_process_that_fails_says_why_before_its_connection_ends(world: Any) -> None:
    client = await world.join()
    client._fail(FileError("the disk is full"))
    with pytest.raises(FileError):
        await world.within(client.over())
    await world.within(client.send(world.down(0).reply(), None))  # though it never will
    await client.close(why="the disk is full")
    assert [line["why"] for line in world.log.of("process left")] == ["the disk is full"]
    assert not world.log.of("process gone")


async def test_the_server_hears_of_a_frame_that_cannot_be_used(world: Any) -> None:
    client = await world.join()
    with patch("fedsim.bus.http.client.decode_frame", side_effect=DecodeError("spoilt")):
        world.ask(0)
        await world.until(lambda: world.ledger.outcomes()["undecodable"] or world.server.rejected)
    assert world.server.rejected == {"unusable": 1}
    assert world.log.of("peer rejected")[0]["why"] == "spoilt"
    assert not world.num_open
    async with world.echoing(client):
        world.ask(0, 1)
        assert (await world.taken()).header.dispatch == 1


async def test_what_a_server_must_not_say_is_not_taken(world: Any) -> None:
    """The connection is made anew."""
    client = await world.join("0-4")
    session = world.server._sessions[client._secret]
    for bad in (
        entry("x", "no"),
        entry("h", "run", "server", body=(b"",)),
        entry("d", 9, 0, 1, "train", 0, -1),
    ):
        await world.within(world.server.wait_for_clients([0]))
        session.say(bad)
        await world.until(lambda: not world.server.is_connected(0))
    await world.within(world.server.wait_for_clients([0]))
    assert not client._is_over
