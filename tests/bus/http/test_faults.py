"""Connections that break, stall, trickle and come back; processes that are killed."""

from __future__ import annotations

import asyncio
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedsim.bus.http.state_folder import StateFolder
from fedsim.errors import FileError, UserError
from fedsim.wire import DEFAULT, ModelUpdate

SMALL, APART, LARGE = 50, 40_000, 400_000  # floats: frames that travel together, alone, and in several pieces


async def exchange(world: Any, client: Any, rounds: int, num: int, clients: int = 4) -> None:
    """Ask several clients several times, and check that each reply comes once, unharmed."""
    async with world.echoing(client):
        for dispatch in range(rounds):
            for number in range(clients):
                world.ask(number, dispatch, num)
            came = [(await world.taken()).header for _ in range(clients)]
            assert sorted(one.sender for one in came) == list(range(clients))
            assert {one.dispatch for one in came} == {dispatch}
    await world.until(lambda: world.ledger.outcomes()["delivered"] == 2 * rounds * clients)
    assert len(world.ledger) == 2 * rounds * clients
    assert not world.waiting_bytes
    assert not world.num_open


REPEATS = {"repeat_up": 10**9, "repeat_down": 10**9}
HARMLESS: dict[str, tuple[dict[str, Any], int]] = {
    "trickles": ({"slice_bytes": 3}, SMALL),
    "comes in slices": ({"slice_bytes": 1000}, APART),
    "is late": ({"latency_s": 0.2}, APART),
    "is narrow": ({"bytes_per_s": 1e6}, APART),
}
BREAKS: dict[str, tuple[dict[str, Any], int]] = {
    "is reset in a request with replies": ({"reset_after": 900}, SMALL),
    "is reset in a large reply": ({"reset_after": 200_000}, APART),
    "is reset in a piece of a large reply": ({"reset_after": 3_000_000}, LARGE),
    "is reset all the time": ({"reset_every": 100_000, "slice_bytes": 1 << 13}, APART),
    "stalls in replies": ({"stall_after": 2000}, SMALL),
    "stalls in a large reply": ({"stall_after": 300_000, "slice_bytes": 1 << 12}, APART),
    "stalls in the outbox": ({"stall_down_after": 2000}, SMALL),
    "stalls in a large dispatch": ({"stall_down_after": 300_000, "slice_bytes": 1 << 12}, APART),
    "repeats what it is sent": ({**REPEATS, "reset_after": 4000}, SMALL),
}
SLOW = ("is reset in a piece of a large reply", "is reset all the time", "stalls in a large dispatch")


@pytest.mark.parametrize(
    "link",
    [pytest.param(link, marks=[pytest.mark.slow] if link in SLOW else []) for link in (*HARMLESS, *BREAKS)],
)
async def test_each_reply_comes_once_and_unharmed_where_the_link(make_world: Any, link: str) -> None:
    harm, num = {**HARMLESS, **BREAKS}[link]
    world = await make_world(idle_burst=10_000)  # a process that repeats itself so much is turned away else
    proxy = await world.proxy(**harm)
    client = await world.join(url=proxy.url)
    await exchange(world, client, 8 if num == SMALL else 2, num)
    assert (proxy.reset_after, proxy.stall_after, proxy.stall_down_after) == (None,) * 3  # it was done
    if link in HARMLESS:
        assert not world.server.rejected
    else:
        assert world.server.rejected["unasked"] == 0
        assert proxy.accepted > 2 or proxy.repeated > 8


async def test_a_black_hole_loses_and_repeats_nothing(world: Any) -> None:
    proxy = await world.proxy()
    client = await world.join(url=proxy.url)
    exchanging = asyncio.ensure_future(exchange(world, client, 10, APART))
    for _ in range(2):
        before = proxy.up
        await world.until(lambda before=before: proxy.up > before + 500_000 or exchanging.done())
        assert not exchanging.done()
        proxy.swallow(True)
        await world.until(lambda: not world.server.attended(0))
        proxy.swallow(False)
    await exchanging
    assert world.server.rejected["silent"] >= 1


async def test_a_transfer_goes_on_where_it_was(make_world: Any) -> None:
    world = await make_world(chunk_bytes=1 << 16)
    proxy = await world.proxy(slice_bytes=1 << 14)
    client = await world.join(url=proxy.url)
    world.ask(0, num=2_000_000)
    await world.until(lambda: proxy.down > 4_000_000)
    proxy.reset_all()
    delivery = await world.got(client)
    proxy.reset_after = proxy.up + 6_000_000
    world.reply(client, delivery)
    await world.taken()
    assert proxy.reset_after is None
    # 8 MB each way: what had arrived was not sent again, and the dispatch itself once.
    assert (proxy.down < 10_000_000, proxy.up < 10_000_000) == (True, True)
    assert world.server._accounts.retransmitted_frames == 0


async def test_silence_on_a_healthy_link_is_no_death(world: Any) -> None:
    proxy = await world.proxy()
    await world.join(url=proxy.url)
    await world.within(world.server.attendance([0]))
    before = proxy.accepted
    for _ in range(4):  # heartbeats, after two of which without a word somebody would be dead
        moved = proxy.up
        await world.until(lambda moved=moved: proxy.up > moved)
    assert proxy.accepted == before
    assert world.server.attended(0)
    assert not world.server.rejected


async def test_what_was_not_answered_goes_to_the_process_that_takes_over(world: Any) -> None:
    first = await world.join("0-4")
    for number in range(5):
        world.ask(number, num=APART if number % 2 else SMALL)
    deliveries = [await world.got(first) for _ in range(5)]
    world.reply(first, deliveries[2])
    await world.taken()
    await first.close(0)  # killed: without state it knows nothing afterwards
    second = await world.join("0-4")
    again = [await world.got(second) for _ in range(4)]
    assert [delivery.header.receiver for delivery in again] == [0, 1, 3, 4]
    assert world.server._accounts.retransmitted_frames == 4
    for delivery in again:
        world.reply(second, delivery)
    assert sorted([(await world.taken()).header.sender for _ in range(4)]) == [0, 1, 3, 4]
    assert len(world.ledger) == 10


@pytest.mark.parametrize("is_ready", [False, True])
async def test_a_second_process_is_refused_while_the_first_is_connected(world: Any, is_ready: bool) -> None:
    first = await world.join("0-4", **({} if is_ready else {"kinds": None}))
    for clients in ("0-4", "4-6", "0", "0-9"):
        with pytest.raises(
            UserError, match="refuses this process: the clients 0-4 are hosted by another process"
        ) as refused:
            await world.join(clients)
        assert "after 40 s of silence" in str(refused.value)
    assert world.server.status()["sessions"] == 1
    first.kinds = world.kinds
    world.ask(3)
    await world.echo(first)
    assert (await world.taken()).header.sender == 3


async def test_a_second_process_gets_in_once_the_first_is_known_to_be_dead(world: Any) -> None:
    proxy = await world.proxy()
    first = await world.join("0-4", url=proxy.url)
    world.ask(3)
    await world.got(first)
    proxy.swallow(True)  # it is cut off, as by a machine that lost its power: nobody closes the connection
    with pytest.raises(UserError, match="hosted by another process"):
        await world.join("0-4")
    await world.until(lambda: not world.server.attended(3))
    assert world.server.rejected["silent"] == 1
    second = await world.join("0-4")
    await world.echo(second)
    assert (await world.taken()).header.sender == 3
    proxy.swallow(False)  # the first was alive all the same, and is told
    proxy.reset_all()
    with pytest.raises(UserError, match="hosted by another process"):
        await world.within(first.over())
    assert world.server.attended(3)


async def test_the_sessions_name_proves_that_a_process_is_the_same(world: Any, tmp_path: Path) -> None:
    proxy = await world.proxy()
    with closing(StateFolder(tmp_path)) as state:
        first = await world.join("0-4", url=proxy.url, state=state)
        proxy.swallow(True)  # the server does not know yet that it was killed
        again = await world.join("0-4", state=state)
        world.ask(3)
        assert (await world.got(again)).header.receiver == 3
        assert world.server.status()["sessions"] == 1
        await first.close(0)


async def test_a_killed_process_takes_its_session_up_again(world: Any, tmp_path: Path) -> None:
    proxy = await world.proxy()
    with closing(StateFolder(tmp_path)) as state:
        first = await world.join("0-4", url=proxy.url, state=state)
        for number in range(5):
            world.ask(number, num=APART)
        deliveries = [await world.got(first) for _ in range(5)]
        proxy.swallow(True)  # nothing gets through, and the process does not know
        for number in (1, 3):
            state.put(number, b"after")
            world.reply(first, deliveries[number])
        state.put(4, b"without a reply")
        await world.until(lambda: not state.pending(1) and not state.pending(3))  # durable, with the replies
        await first.close(0)
    proxy.reset_all()
    with closing(StateFolder(tmp_path)) as state:
        assert [state.get(number) for number in range(5)] == [None, b"after", None, b"after", None]
        second = await world.join("0-4", state=state)
        again = [await world.got(second) for _ in range(3)]
        assert [delivery.header.receiver for delivery in again] == [0, 2, 4]
        for delivery in again:
            world.reply(second, delivery)
        assert sorted([(await world.taken()).header.sender for _ in range(5)]) == [0, 1, 2, 3, 4]
        await world.until(lambda: not any((tmp_path / "replies").iterdir()))  # taken, so forgotten
        assert len(world.ledger) == 10


async def test_a_full_disk_ends_the_process_and_nothing_is_lost(
    world: Any, tmp_path: Path, disk: Any
) -> None:
    async def work(folder: Path) -> None:
        """Reply to what comes, until nothing is left or something fails."""
        kept = folder / "replies"
        with closing(StateFolder(folder)) as state:
            client = world.client("0", state=state)

            async def reply() -> None:
                while True:
                    delivery = await client.receive()
                    state.put(0, b"after")
                    world.reply(client, delivery)

            replying = asyncio.ensure_future(asyncio.sleep(0))
            try:
                await client.connect()
                replying = asyncio.ensure_future(reply())
                await world.until(lambda: replying.done() or not (world.num_open or any(kept.iterdir())))
            finally:
                replying.cancel()
                await asyncio.gather(replying, return_exceptions=True)
                await client.close(0)
                await world.until(lambda: not world.server.attended(0))
            if not replying.cancelled() and replying.exception() is not None:
                raise replying.exception()  # type: ignore[misc]

    async def each(number: int | None, dispatch: int) -> list[str]:
        world.ask(0, dispatch)
        folder, error = tmp_path / str(number), None
        with disk.fails(number) as calls:
            try:
                await world.within(work(folder))
            except FileError as raised:
                error = raised
            done = list(calls)
        assert (error is None) == (number is None), (number, done)
        assert error is None or "No space left on device. Make room" in str(error)
        await world.within(work(folder))
        assert (await world.taken()).header.dispatch == dispatch
        return done

    calls = await each(None, 0)
    assert {"open", "write", "fsync", "replace"} <= set(calls)
    for number in range(len(calls)):
        await each(number, 1 + number)


async def test_a_state_folder_belongs_to_one_run(make_world: Any, tmp_path: Path) -> None:
    one, other = await make_world(), await make_world()
    with closing(StateFolder(tmp_path)) as state:
        await (await one.join(state=state)).close()
        with pytest.raises(UserError, match="another run: join it anew, with an empty state folder"):
            await other.join(state=state)


async def test_a_session_that_is_away_for_too_long_is_forgotten(make_world: Any) -> None:
    world = await make_world(session_ttl_s=60.0)
    client = await world.join()
    world.ask(0)
    await world.got(client)
    await client.close()
    await world.within(world.ask(1))
    assert world.ledger.outcomes() == {"in_flight": 0, "lost": 0, "undecodable": 0, "delivered": 1}
    assert len(world.ledger) == 1  # what was never put on a link has no row
    assert world.server.status()["sessions"] == 0


async def test_a_server_that_goes_away_ends_the_patience(make_world: Any) -> None:
    world = await make_world(patience_s=30.0)
    client = await world.join()
    await world.server.close(0.1)
    with pytest.raises(ConnectionError, match="no connection to"):
        await world.within(client.over())
    with pytest.raises(ConnectionError):
        await world.got(client)
    await world.within(client.send(world.down(0).reply(), ModelUpdate.of(world.model(3), num_samples=1)))


async def test_large_replies_that_do_not_fit_together_get_through(make_world: Any) -> None:
    """Each has a share of what a session may hold, and none can go on unless others make way."""
    few = replace(DEFAULT, frame_bytes=400_000)
    world = await make_world(frame=few, session_upload_bytes=400_000, chunk_bytes=1 << 14)
    proxy = await world.proxy(slice_bytes=1 << 14)
    client = await world.join(url=proxy.url)
    for number in range(4):
        world.ask(number, num=75_000)
    await world.echo(client, 4)
    assert sorted([(await world.taken()).header.sender for _ in range(4)]) == [0, 1, 2, 3]


async def test_a_session_can_be_gone_for_two_requests_at_once(world: Any) -> None:
    client = await world.join()
    await world.until(lambda: world.server.attended(0))
    for _ in range(5):
        client._gone()
        await asyncio.sleep(0)
    world.ask(0)
    assert (await world.got(client)).header.client == 0


async def test_a_request_whose_body_never_leaves_is_repeated(make_world: Any) -> None:
    world = await make_world(request_timeout_s=10.0)
    client, tries = await world.join(), 0

    async def attempt() -> None:
        nonlocal tries
        tries += 1
        if tries < 3:
            await asyncio.Event().wait()

    await world.within(client._requests.persist(attempt))
    assert tries == 3
