"""Who gets which clients, and how many frames a process is given at once."""

from typing import Any

import pytest

from fedsim.errors import UserError
from tests.bus.http.peer import HAS_NOTHING, NAME, joining, peer, reply


async def test_a_session_belongs_to_one_process(world: Any) -> None:
    async with peer(world, clients="0-4"):
        pass
    await world.until(lambda: not world.server.is_connected(0))
    async with peer(world, joins=False) as other:
        await other.say(joining("0-3"), HAS_NOTHING)
        assert "belongs to another process" in (await other.heard("x")).values[0]
        assert await other.is_cut()
    assert world.server.rejected == {"refused": 1}
    assert [values["why"] for values in world.log.of("process refused")] != []
    async with peer(world, clients="0-4"):
        assert [line["resumed"] for line in world.log.of("process joined")] == [False, True]
    assert NAME not in repr(world.server._sessions[NAME])


async def test_who_is_away_loses_clients_to_who_comes(world: Any) -> None:
    world.ask(1)
    first = await world.join("0-4")
    await world.got(first)
    with pytest.raises(UserError, match=r"the clients 0-4 are hosted by .* after 40 s of silence"):
        await world.join("4-6")
    await first.close(0)
    await world.until(lambda: not world.server.is_connected(0))
    world.ask(1, 1)
    world.ask(9)
    second = await world.join("1-2,9")
    assert [line["clients"] for line in world.log.of("process retired")] == ["0-4"]
    keys = [
        (each.header.receiver, each.header.dispatch) for each in [await world.got(second) for _ in range(3)]
    ]
    assert keys == [(1, 0), (1, 1), (9, 0)]
    assert world.server.status()["sessions"] == 1
    world.ask(0)  # waits for somebody
    third = await world.join("0")
    assert (await world.got(third)).header.receiver == 0


async def test_frames_that_are_not_replied_to_are_bounded(make_world: Any) -> None:
    """One always fits; header alone and questions do not wait."""
    world = await make_world(window_bytes=5000)
    async with peer(world) as slow:
        for number, num in enumerate((2000, 1000, 100, 1000)):  # floats
            world.ask(number, num=num)
        assert (await slow.heard("d")).values[0] == 0
        assert (world.num_open, len(world.ledger)) == (4, 1)
        await slow.say(reply(world, 0))
        assert [(await slow.heard("d")).values[0] for _ in range(2)] == [1, 2]
        await slow.say(reply(world, 1))
        assert (await slow.heard("d")).values[0] == 3
        for number in (2, 3):
            await slow.say(reply(world, number))
        assert await world.senders(4) == [0, 1, 2, 3]
        assert world.server._sessions[NAME].held_bytes == 0
