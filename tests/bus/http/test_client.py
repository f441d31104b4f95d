"""What a client process says to a person, and what it does not send."""

from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from fedsim.bus.http.state_folder import StateFolder
from fedsim.errors import FileError, RunError, UserError
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


async def test_who_names_more_ranges_of_clients_than_fit_is_told(world: Any) -> None:
    with pytest.raises(UserError, match=r"so many ranges of clients \(a request of 234474 bytes, the limit"):
        await world.join(",".join(str(2 * number) for number in range(40_000)))


async def test_an_answer_that_is_longer_than_a_frame_may_be_is_not_sent(make_world: Any) -> None:
    world = await make_world(frame=Limits(frame_bytes=100_000))
    client = await world.join()
    lengths = iter((100_000, 100_001))

    async def answer(number: int, question: bytes) -> bytes:
        return bytes(next(lengths))

    client.on_probe(answer)
    assert await world.server.probe(0, b"?", 60.0) == bytes(100_000)
    with pytest.raises(RunError, match="an answer of 100001 bytes: the limit is 100000"):
        await world.server.probe(0, b"?", 60.0)


async def test_a_process_that_fails_says_why_before_its_connection_ends(world: Any, tmp_path: Path) -> None:
    with closing(StateFolder(tmp_path)) as state:
        client = await world.join(state=state)
        with patch.object(state, "keep", side_effect=FileError("the disk is full")):
            world.ask(0)
            left = world.reply(client, await world.got(client))
            with pytest.raises(FileError):
                await world.within(client.over())
            await world.within(left)  # though it never will
            await client.close(why="the disk is full")
    await world.until(lambda: world.log.of("process left"))
    assert world.log.of("process left")[0]["why"] == "the disk is full"
    assert not world.log.of("process gone")


async def test_a_session_that_turns_out_unknown_while_the_outbox_is_being_opened_is_joined_anew(
    world: Any,
) -> None:
    """The answer to an older request may come later than the one to the join."""
    client = await world.join()
    client._requests.joined.clear()
    client._gone()
    async with world.echoing(client):
        world.ask(0)
        await world.within(world.taken(), world.limits.silence_s / 2)
    assert not world.server.rejected


async def test_the_server_hears_of_a_frame_that_comes_spoilt_each_time(world: Any) -> None:
    client = await world.join()
    with patch("fedsim.bus.http.messages.compare_digest", lambda *_: False):
        world.ask(0, 0, num=40_000)
        await world.until(lambda: world.ledger.outcomes()["undecodable"])
    assert world.server.rejected == {"unusable": 1}
    assert "bytes came 3 times with another SHA-256" in world.log.of("peer rejected")[0]["why"]
    assert not world.num_open
    async with world.echoing(client):
        world.ask(0, 1, num=40_000)
        assert (await world.taken()).header.dispatch == 1
