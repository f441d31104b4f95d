"""Connections that break, stall, trickle and come back; processes that are killed."""

import asyncio
import math
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fedsim.bus.http.state_folder import StateFolder
from fedsim.bus.reply_report import Note, Report
from fedsim.errors import UserError

SMALL, MIDDLE, LARGE = 50, 40_000, 400_000  # floats: a large frame travels in several messages


def link(does: str, num: int, *, is_slow: bool = False, **harm: Any) -> Any:
    """A row: what a link does to frames of so many floats."""
    return pytest.param(harm, num, id=does, marks=[pytest.mark.slow] if is_slow else [])


@pytest.mark.parametrize(
    ("harm", "num"),
    [
        link("trickles", SMALL, slice_bytes=7),
        link("comes in slices", MIDDLE, slice_bytes=1000),
        link("is late", MIDDLE, latency_s=0.2),
        link("is narrow", MIDDLE, bytes_per_s=1e6),
        link("is reset in small replies", SMALL, reset_after=2000),
        link("is reset in a reply", MIDDLE, reset_after=200_000),
        link("is reset in a large reply", LARGE, is_slow=True, reset_after=3_000_000),
        link("stalls in replies", SMALL, stall_after=2000),
        link("stalls in a large reply", LARGE, stall_after=300_000, slice_bytes=4096),
        link("stalls in dispatches", SMALL, stall_down_after=2000),
        link("stalls in a large dispatch", LARGE, is_slow=True, stall_down_after=300_000, slice_bytes=4096),
    ],
)
async def test_each_reply_comes_once_and_unharmed_where_the_link(
    make_world: Any, harm: dict[str, Any], num: int
) -> None:
    world = await make_world()
    proxy = await world.proxy(**harm)
    client, rounds = await world.join(url=proxy.url), 8 if num == SMALL else 2
    client.reporter = lambda header: Report(0, [Note("info", "noted", {})])
    async with world.echoing(client):
        for dispatch in range(rounds):
            for number in range(4):
                world.ask(number, dispatch, num)
            assert await world.senders(4) == [0, 1, 2, 3]
    await world.until(lambda: world.ledger.outcomes()["delivered"] == 2 * rounds * 4)
    assert (len(world.ledger), len(world.log.of("noted"))) == (2 * rounds * 4, rounds * 4)
    assert world.num_open == 0
    assert {proxy.reset_after, proxy.stall_after, proxy.stall_down_after} == {math.inf}  # it was done
    if harm.keys() <= {"slice_bytes", "latency_s", "bytes_per_s"}:
        assert not world.server.rejected
    else:
        assert world.server.rejected.keys() <= {"repeated", "silent"}
        assert proxy.accepted > 1


async def test_a_large_frame_begins_anew_after_a_break(make_world: Any) -> None:
    world = await make_world()
    proxy = await world.proxy(slice_bytes=1 << 14)
    client = await world.join(url=proxy.url)
    world.ask(0, num=2_000_000)
    await world.until(lambda: proxy.down > 4_000_000)
    proxy.reset_all()
    delivery = await world.got(client)
    proxy.reset_after = proxy.up + 6_000_000
    world.reply(client, delivery)
    await world.taken()
    assert proxy.reset_after == math.inf
    assert (proxy.down > 12_000_000, proxy.up > 14_000_000) == (True, True)  # 8 MB each, and what broke
    assert world.ledger.outcomes()["delivered"] == len(world.ledger) == 2


async def test_a_reply_whose_confirmation_is_lost_is_not_sent_again(world: Any) -> None:
    """Its process hears on the next connection that it was taken."""
    proxy = await world.proxy()
    client = await world.join(url=proxy.url)
    delivery = await world.asked(client, 0)
    proxy.swallow_down(True)
    left = asyncio.ensure_future(world.reply(client, delivery))
    await world.taken()
    assert not left.done()
    proxy.reset_all()
    proxy.swallow_down(False)
    await world.within(left)
    assert not world.server.rejected
    assert len(world.ledger) == 2


async def test_silence_on_a_healthy_link_is_no_death(world: Any) -> None:
    proxy = await world.proxy()
    await world.join(url=proxy.url)
    await world.within(world.server.wait_for_clients([0]))
    before = proxy.accepted
    for _ in range(4):  # heartbeats, after two of which without a word somebody would be dead
        moved = proxy.up
        await world.until(lambda moved=moved: proxy.up > moved)
    assert proxy.accepted == before
    assert world.server.is_connected(0)
    assert not world.server.rejected


async def test_another_process_takes_clients_over_once_theirs_is_known_to_be_dead(world: Any) -> None:
    async def check_refused() -> None:
        for clients in ("0-4", "4-6", "0", "0-9"):
            with pytest.raises(UserError, match=r"the clients 0-4 are hosted by .* after 40 s of silence"):
                await world.join(clients)
        assert world.server.status()["sessions"] == 1

    proxy = await world.proxy()
    first = await world.join("0-4", url=proxy.url, is_ready=False)
    await check_refused()
    world.make_ready(first)
    deliveries = [
        await world.asked(first, number, num=MIDDLE if number % 2 else SMALL) for number in range(5)
    ]
    world.reply(first, deliveries[2])
    await world.taken()
    proxy.swallow(True)  # it is cut off, as by a machine that lost its power: nobody closes the connection
    await check_refused()
    await world.until(lambda: not world.server.is_connected(3))
    assert world.server.rejected["silent"] == 1
    second = await world.join("0-4")
    again = [await world.got(second) for _ in range(4)]
    assert [delivery.header.receiver for delivery in again] == [0, 1, 3, 4]
    for delivery in again:
        world.reply(second, delivery)
    assert await world.senders(4) == [0, 1, 3, 4]
    assert len(world.ledger) == 10
    proxy.swallow(False)  # the first was alive all the same, and is told
    proxy.reset_all()
    with pytest.raises(UserError, match="hosted by another process"):
        await world.within(first.over())
    assert world.server.is_connected(3)


async def test_a_killed_process_takes_its_session_up_again(world: Any, tmp_path: Path) -> None:
    """All that has no reply comes again; a dispatch that it knew, too."""
    proxy = await world.proxy()
    with closing(StateFolder(tmp_path)) as state:
        first = await world.join("0-4", url=proxy.url, state=state)
        deliveries = [await world.asked(first, number, num=MIDDLE) for number in range(5)]
        world.reply(first, deliveries[1])
        assert (await world.taken()).header.sender == 1
        proxy.swallow(True)  # nothing gets through, and the process does not know
        world.reply(first, deliveries[3])
        await first.close(0)
    with closing(StateFolder(tmp_path)) as state:
        assert world.server.is_connected(
            0
        )  # that it was killed the server does not know yet, but knows the name
        second = await world.join("0-4", state=state)
        again = [await world.got(second) for _ in range(4)]
        assert [delivery.header.receiver for delivery in again] == [0, 2, 3, 4]
        for delivery in again:
            world.reply(second, delivery)
        assert await world.senders(4) == [0, 2, 3, 4]
    assert len(world.ledger) == 10
    assert world.server.status()["sessions"] == 1


async def test_states_are_forgotten_once_the_server_goes_back_to_them_no_more(
    world: Any, tmp_path: Path
) -> None:
    with closing(StateFolder(tmp_path)) as state:
        client = await world.join(state=state)
        for dispatch in range(3):
            delivery = await world.asked(client, 0, dispatch)
            state.put(0, dispatch, b"%d" % dispatch)
            await world.within(asyncio.gather(world.reply(client, delivery), world.taken()))
        assert state._place(0, 0).exists()
        world.server.mark({0: [2]})
        await world.until(lambda: not state._place(0, 0).exists())
        assert state._place(0, 1).exists()
        world.server.mark({0: [3]})
        await world.until(lambda: not state._place(0, 1).exists())
        assert state.get(0) == b"2"


async def test_a_process_that_has_come_back_is_asked_only_once_it_is_ready(
    world: Any, tmp_path: Path
) -> None:
    async def answer(number: int, question: bytes) -> bytes:
        return b"held"

    with closing(StateFolder(tmp_path)) as state:
        first = await world.join(state=state)
        await world.within(world.server.wait_for_clients([0]))
        await first.close(0)
        second = await world.join(state=state, is_ready=False)  # it builds its data for a while
        second.prober = answer
        asking = asyncio.ensure_future(world.server.probe(0, b"?", 60.0))
        await asyncio.sleep(10)
        assert (asking.done(), world.server.is_connected(0)) == (False, False)
        world.make_ready(second)
        assert await world.within(asking) == b"held"
        assert world.server.is_connected(0)


async def test_a_state_folder_belongs_to_one_run(make_world: Any, tmp_path: Path) -> None:
    one, other = await make_world(), await make_world()
    with closing(StateFolder(tmp_path)) as state:
        await (await one.join(state=state)).close()
        with pytest.raises(UserError, match="another run: join it anew, with an empty state folder"):
            await other.join(state=state)


async def test_what_nobody_hosts_for_too_long_is_dropped(make_world: Any) -> None:
    world = await make_world(dispatch_ttl_s=60.0)
    client, staying = await world.join("0-1"), await world.join("2")
    await world.asked(client, 0)
    kept = await world.asked(staying, 2)
    await client.close()
    world.ask(1)
    await asyncio.sleep(20)
    assert world.num_open == 3
    await world.until(lambda: world.num_open == 1)
    world.reply(staying, kept)  # however long it takes who is there
    assert await world.senders(1) == [2]
    assert world.ledger.outcomes() == {"in_flight": 0, "lost": 0, "undecodable": 0, "delivered": 3}
    assert len(world.ledger) == 3  # what was never put on a link has no row
