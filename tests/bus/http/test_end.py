"""The end of a run: who hears of it, and what is entered no more."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fedsim.bus.http.state_folder import StateFolder
from fedsim.errors import RunError


async def test_who_loses_the_connection_at_the_very_end_hears_of_it_all_the_same(world: Any) -> None:
    proxy = await world.proxy()
    client = await world.join(url=proxy.url)
    before = proxy.accepted
    proxy.swallow(True)  # so that the news does not get through
    world.server.finish()
    ending = asyncio.ensure_future(world.server.close(60.0))
    await asyncio.sleep(0.01)
    proxy.reset_all()
    proxy.swallow(False)
    await world.within(client.over())
    await world.within(ending)
    assert proxy.accepted > before


@pytest.mark.parametrize(
    ("grace_s", "is_over", "least_s", "most_s"),
    [(5.0, True, 2.0, 5.5), (5.0, False, 0.0, 0.5)],
    ids=["a little after the end of the run", "not at all when stopped"],
)
async def test_how_long_a_process_that_was_killed_is_waited_for(
    world: Any, grace_s: float, is_over: bool, least_s: float, most_s: float
) -> None:
    client = await world.join()
    await client.close(0)
    await world.until(lambda: not world.server.attended(0))
    if is_over:
        world.server.finish()  # it may come back to hear of it
    began_s = asyncio.get_running_loop().time()
    await world.within(world.server.close(grace_s))
    assert least_s <= asyncio.get_running_loop().time() - began_s <= most_s
    assert world.server.connections.num_connections == 0


async def test_nobody_waits_for_a_process_that_has_left(world: Any) -> None:
    staying, leaving = await world.join("0-4"), await world.join("5-9")
    await leaving.close()
    await world.until(lambda: not world.server.attended(5))
    world.server.finish()
    await world.within(staying.over())
    await staying.close()  # at once: it has said that it leaves
    began_s = asyncio.get_running_loop().time()
    await world.within(world.server.close(60.0))
    assert asyncio.get_running_loop().time() - began_s < 1
    assert world.server.connections.num_connections == 0
    assert {"clients": "0-4", "why": "the run is over"} in world.log.of("process left")


async def test_what_travels_after_the_end_is_entered_nowhere(world: Any) -> None:
    client = await world.join()
    for number in range(3):
        world.ask(number)
    deliveries = [await world.got(client) for _ in range(3)]
    world.reply(client, deliveries[0])
    await world.taken()
    world.server.seal()
    records, rows = len(world.trace.kept), len(world.ledger)
    assert rows == 4
    world.reply(client, deliveries[1])
    await world.taken()  # who goes on receiving does
    await world.within(world.ask(4))
    await client.close()
    await world.server.close(0.1)
    assert (len(world.trace.kept), len(world.ledger)) == (records, rows)


async def test_a_process_that_has_come_back_is_asked_only_once_it_is_ready(
    world: Any, tmp_path: Path
) -> None:
    with pytest.raises(TimeoutError):
        await world.server.probe(0, b"?", 0.01)
    with closing(StateFolder(tmp_path)) as state:
        first = await world.join(state=state)
        await world.within(world.server.attendance([0]))
        await first.close(0)
    with closing(StateFolder(tmp_path)) as state:
        # Under the session that it had, and building its data for a while.
        second = await world.join(state=state, kinds=None)
        assert not world.server.attended(0)
        asking = asyncio.ensure_future(world.server.probe(0, b"?", 60.0))

        async def answer(number: int, question: bytes) -> bytes:
            return b"held"

        await asyncio.sleep(10)
        assert not asking.done()
        second.kinds = world.kinds
        second.on_probe(answer)
        assert await world.within(asking) == b"held"
        assert world.server.attended(0)
        await second.close(0)


async def test_a_process_that_cannot_answer_says_so(world: Any) -> None:
    await world.join()
    await world.within(world.server.attendance([0]))
    with pytest.raises(RunError, match="nobody answers probes here"):
        await world.within(world.server.probe(0, b"?", 60.0))
