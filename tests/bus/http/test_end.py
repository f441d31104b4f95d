"""The end of a run: who hears of it, and what is entered no more."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fedsim.bus.http.state_folder import StateFolder
from fedsim.errors import RunError


async def test_who_loses_the_connection_at_the_very_end_hears_of_it_all_the_same(make_world: Any) -> None:
    world = await make_world()
    proxy = await world.proxy()
    client = await world.join(url=proxy.url)
    before = proxy.accepted
    proxy.swallow(True)  # so that the news does not get through
    world.server.finish()
    closing = asyncio.ensure_future(world.server.close(60.0))
    await asyncio.sleep(0.01)
    proxy.reset_all()
    proxy.swallow(False)
    await world.within(client.over())
    await world.within(closing)
    assert proxy.accepted > before


async def test_nobody_waits_for_a_process_that_has_left(make_world: Any) -> None:
    world = await make_world()
    staying, leaving = await world.join("0-4"), await world.join("5-9")
    await leaving.close()
    await world.until(lambda: not world.server.attended(5))
    world.server.finish()
    await world.within(world.server.close(60.0))
    await world.within(staying.over())
    assert world.server.num_connections == 0


async def test_nobody_waits_long_for_a_process_that_was_killed(make_world: Any) -> None:
    world = await make_world()
    client = await world.join()
    await client.close(0)
    await world.until(lambda: not world.server.attended(0))
    world.server.finish()
    began_at_s = asyncio.get_running_loop().time()
    await world.within(world.server.close(0.2))
    assert asyncio.get_running_loop().time() - began_at_s > 0.1  # though a little, since it may come back


async def test_a_server_that_is_stopped_waits_for_nobody_who_is_away(make_world: Any) -> None:
    world = await make_world()
    client = await world.join()
    await client.close(0)
    await world.until(lambda: not world.server.attended(0))
    await world.within(world.server.close(60.0))
    assert world.server.num_connections == 0


async def test_what_travels_after_the_end_is_entered_nowhere(make_world: Any) -> None:
    world = await make_world()
    client = await world.join()
    for number in range(3):
        world.ask(number)
    deliveries = [await world.within(client.receive()) for _ in range(3)]
    world.reply(client, deliveries[0])
    await world.within(world.server.receive())
    world.server.seal()
    records, rows = len(world.trace.kept), len(world.ledger)
    assert rows == 4
    world.reply(client, deliveries[1])
    await world.within(world.server.receive())  # who goes on receiving does
    await world.within(world.ask(4))
    await client.close()
    await world.server.close(0.1)
    assert (len(world.trace.kept), len(world.ledger)) == (records, rows)


async def test_a_process_that_has_come_back_is_asked_only_once_it_is_ready(
    make_world: Any, tmp_path: Path
) -> None:
    world = await make_world()
    with pytest.raises(TimeoutError):
        await world.server.probe(0, b"?", 0.01)
    state = StateFolder(tmp_path)
    first = await world.join(state=state)
    await world.within(world.server.attendance([0]))
    await first.close(0)
    state.close()
    state = StateFolder(tmp_path)
    second = world.client(state=state, kinds=None)
    await second.connect()  # under the session that it had, and building its data for a while
    assert not world.server.attended(0)
    asking = asyncio.ensure_future(world.server.probe(0, b"?", 60.0))

    async def answer(number: int, question: bytes) -> bytes:
        return b"held"

    await asyncio.sleep(0.02)
    assert not asking.done()
    second.kinds = world.kinds
    second.on_probe(answer)
    assert await world.within(asking) == b"held"
    assert world.server.attended(0)
    await second.close(0)
    state.close()


async def test_a_process_that_cannot_answer_says_so(make_world: Any) -> None:
    world = await make_world()
    await world.join()
    await world.within(world.server.attendance([0]))
    with pytest.raises(RunError, match="nobody answers probes here"):
        await world.within(world.server.probe(0, b"?", 60.0))


async def test_a_process_that_ends_at_once_has_said_that_it_leaves(make_world: Any) -> None:
    world = await make_world()
    client = await world.join()
    await world.until(lambda: world.server.attended(0))
    world.server.finish()
    await world.within(client.over())
    await client.close()
    await world.within(world.server.close(60.0))
    assert ("process left", {"clients": "0-9", "why": "the run is over"}) in world.log.lines
