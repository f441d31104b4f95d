"""Connections that break, stall, trickle and come back; processes that are killed."""

import asyncio
import math
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedsim.bus.http.state_folder import StateFolder
from fedsim.bus.reply_report import Note, Report
from fedsim.errors import FileError, UserError
from fedsim.wire import DEFAULT
from tests.bus.http.peer import hello, peer

SMALL, APART, LARGE = 50, 40_000, 400_000  # floats: frames that travel together, alone, and in several pieces


def link(does: str, num: int, *, is_slow: bool = False, **harm: Any) -> Any:
    """A row: what a link does to frames of so many floats."""
    return pytest.param(harm, num, id=does, marks=[pytest.mark.slow] if is_slow else [])


@pytest.mark.parametrize(
    ("harm", "num"),
    [
        link("trickles", SMALL, slice_bytes=7),
        link("comes in slices", APART, slice_bytes=1000),
        link("is late", APART, latency_s=0.2),
        link("is narrow", APART, bytes_per_s=1e6),
        link("is reset in a request with replies", SMALL, reset_after=900),
        link("is reset in a large reply", APART, reset_after=200_000),
        link("is reset in a piece of a large reply", LARGE, is_slow=True, reset_after=3_000_000),
        link("stalls in replies", SMALL, stall_after=2000),
        link("stalls in a large reply", APART, stall_after=300_000, slice_bytes=4096),
        link("stalls in the outbox", SMALL, stall_down_after=2000),
        link("stalls in a large dispatch", APART, is_slow=True, stall_down_after=300_000, slice_bytes=4096),
        link("repeats what it is sent", SMALL, repeat_up=10**9, repeat_down=10**9, reset_after=4000),
    ],
)
async def test_each_reply_comes_once_and_unharmed_where_the_link(
    make_world: Any, harm: dict[str, Any], num: int
) -> None:
    world = await make_world(idle_burst=10_000)  # a process that repeats itself so much is turned away else
    proxy = await world.proxy(**harm)
    client, rounds = await world.join(url=proxy.url), 8 if num == SMALL else 2
    client.on_reply(lambda header: Report(0, [Note("info", "noted", {})]))
    async with world.echoing(client):
        for dispatch in range(rounds):
            for number in range(4):
                world.ask(number, dispatch, num)
            assert await world.senders(4) == [0, 1, 2, 3]
    await world.until(lambda: world.ledger.outcomes()["delivered"] == 2 * rounds * 4)
    assert (len(world.ledger), len(world.log.of("noted"))) == (2 * rounds * 4, rounds * 4)
    assert (world.num_open, world.waiting_bytes) == (0, 0)
    assert {proxy.reset_after, proxy.stall_after, proxy.stall_down_after} == {math.inf}  # it was done
    if harm.keys() <= {"slice_bytes", "latency_s", "bytes_per_s"}:
        assert not world.server.rejected
    else:
        assert world.server.rejected["unasked"] == 0
        assert proxy.accepted > 2 or proxy.repeated > 8


async def test_a_large_frame_begins_anew_after_a_break(make_world: Any) -> None:
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
    assert proxy.reset_after == math.inf
    assert (proxy.down > 12_000_000, proxy.up > 14_000_000) == (True, True)  # 8 MB each, and what broke
    assert world.ledger.outcomes()["delivered"] == len(world.ledger) == 2


async def test_a_reply_whose_answer_is_lost_is_not_sent_again(make_world: Any) -> None:
    """Its process asks first, and hears that the reply was taken."""
    world = await make_world(chunk_bytes=1 << 14)
    proxy = await world.proxy(slice_bytes=1 << 14)
    client = await world.join(url=proxy.url)
    delivery = await world.asked(client, 0, num=LARGE)
    before, left = proxy.up, world.reply(client, delivery)
    await world.until(lambda: proxy.up > before + 500_000)
    proxy.swallow_down(True)
    await world.taken()
    before = proxy.up
    proxy.reset_all()
    proxy.swallow_down(False)
    await world.within(left)
    assert proxy.up - before < 20_000
    assert world.server.rejected["repeated"] == 1


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


async def test_another_process_takes_clients_over_once_theirs_is_known_to_be_dead(world: Any) -> None:
    async def check_refused() -> None:
        for clients in ("0-4", "4-6", "0", "0-9"):
            with pytest.raises(UserError, match=r"the clients 0-4 are hosted by .* after 40 s of silence"):
                await world.join(clients)
        assert world.server.status()["sessions"] == 1

    proxy = await world.proxy()
    first = await world.join("0-4", url=proxy.url, kinds=None)
    await check_refused()
    first.kinds = world.kinds
    deliveries = [await world.asked(first, number, num=APART if number % 2 else SMALL) for number in range(5)]
    world.reply(first, deliveries[2])
    await world.taken()
    proxy.swallow(True)  # it is cut off, as by a machine that lost its power: nobody closes the connection
    await check_refused()
    await world.until(lambda: not world.server.attended(3))
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
    assert world.server.attended(3)


async def test_a_killed_process_takes_its_session_up_again(world: Any, tmp_path: Path) -> None:
    """With its replies, what was noted with them, and the states that belong to them."""
    proxy = await world.proxy()
    with closing(StateFolder(tmp_path)) as state:
        first = await world.join("0-4", url=proxy.url, state=state)
        first.on_reply(lambda header: Report(0, [Note("info", "noted", {})]))
        deliveries = [await world.asked(first, number, num=APART) for number in range(5)]
        proxy.swallow(True)  # nothing gets through, and the process does not know
        for number in (1, 3):
            state.put(number, b"after")
            world.reply(first, deliveries[number])
        state.put(4, b"without a reply")
        await world.until(lambda: not state.pending(1) and not state.pending(3))  # durable, with the replies
        await first.close(0)
    with closing(StateFolder(tmp_path)) as state:
        assert [state.get(number) for number in range(5)] == [None, b"after", None, b"after", None]
        assert world.server.attended(0)  # that it was killed the server does not know yet, but knows the name
        second = await world.join("0-4", state=state)
        again = [await world.got(second) for _ in range(3)]
        assert [delivery.header.receiver for delivery in again] == [0, 2, 4]
        for delivery in again:
            world.reply(second, delivery)
        assert await world.senders(5) == [0, 1, 2, 3, 4]
        await world.until(lambda: not any((tmp_path / "replies").iterdir()))  # taken, so forgotten
    assert len(world.ledger) == 10
    assert world.server.status()["sessions"] == 1
    assert sorted(one["client"] for one in world.log.of("noted")) == [1, 3]


async def test_a_process_that_has_come_back_is_asked_only_once_it_is_ready(
    world: Any, tmp_path: Path
) -> None:
    async def answer(number: int, question: bytes) -> bytes:
        return b"held"

    with closing(StateFolder(tmp_path)) as state:
        first = await world.join(state=state)
        await world.within(world.server.attendance([0]))
        await first.close(0)
        second = await world.join(state=state, kinds=None)  # it builds its data for a while
        second.on_probe(answer)
        asking = asyncio.ensure_future(world.server.probe(0, b"?", 60.0))
        await asyncio.sleep(10)
        assert (asking.done(), world.server.attended(0)) == (False, False)
        second.kinds = world.kinds
        assert await world.within(asking) == b"held"
        assert world.server.attended(0)


async def test_a_full_disk_ends_the_process_and_nothing_is_lost(
    world: Any, tmp_path: Path, disk: Any
) -> None:
    """At whichever call it fails; started again, the process goes on."""

    async def work(folder: Path) -> None:
        """Reply to what comes, until nothing is left or something fails."""
        with closing(StateFolder(folder)) as state:
            client = world.client("0", state=state)

            async def reply() -> None:
                await client.connect()
                while True:
                    delivery = await client.receive()
                    state.put(0, b"%d" % delivery.header.dispatch)
                    world.reply(client, delivery)

            replying = asyncio.ensure_future(reply())
            await world.until(
                lambda: replying.done() or not (world.num_open or any((folder / "replies").iterdir()))
            )
            replying.cancel()
            (error,) = await asyncio.gather(replying, return_exceptions=True)
            await client.close(0)
            await world.until(lambda: not world.server.attended(0))
        if isinstance(error, Exception):
            raise error

    async def each(number: int | None, dispatch: int) -> list[str]:
        world.ask(0, dispatch)
        world.ask(0, dispatch + 1)
        folder = tmp_path / str(number)
        with disk.fails(number) as calls:
            if number is None:
                await world.within(work(folder))
            else:
                why = rf"cannot .*{folder}.*: No space left on device\. Make room.* start this process again"
                with pytest.raises(FileError, match=why):
                    await world.within(work(folder))
            done = list(calls)
        await world.within(work(folder))
        assert [(await world.taken()).header.dispatch for _ in range(2)] == [dispatch, dispatch + 1]
        with closing(StateFolder(folder)) as state:
            assert state.get(0) == b"%d" % (dispatch + 1)
        names = {str(path.relative_to(folder)) for path in folder.rglob("*")}
        assert names == {"lock", "session", "replies", "states", "states/0"}
        return done

    calls = await each(None, 0)
    assert {"open", "write", "fsync", "replace"} <= set(calls)
    for number in range(len(calls)):
        await each(number, 2 + 2 * number)


async def test_a_state_folder_belongs_to_one_run(make_world: Any, tmp_path: Path) -> None:
    one, other = await make_world(), await make_world()
    with closing(StateFolder(tmp_path)) as state:
        await (await one.join(state=state)).close()
        with pytest.raises(UserError, match="another run: join it anew, with an empty state folder"):
            await other.join(state=state)


async def test_a_session_that_is_away_for_too_long_is_forgotten(make_world: Any) -> None:
    world = await make_world(session_ttl_s=60.0)
    client = await world.join()
    await world.asked(client, 0)
    await client.close()
    waiting = world.ask(1)
    await asyncio.sleep(20)
    assert not waiting.done()
    await world.within(waiting)
    assert world.ledger.outcomes() == {"in_flight": 0, "lost": 0, "undecodable": 0, "delivered": 1}
    assert len(world.ledger) == 1  # what was never put on a link has no row
    assert world.server.status()["sessions"] == 0


async def test_large_replies_that_do_not_fit_together_get_through(make_world: Any) -> None:
    """One at a time fits into what a session may hold; the others are put off."""
    few = replace(DEFAULT, frame_bytes=400_000)
    world = await make_world(frame=few, session_upload_bytes=400_000, chunk_bytes=1 << 14)
    proxy = await world.proxy(slice_bytes=1 << 14)
    client = await world.join(url=proxy.url)
    for number in range(4):
        world.ask(number, num=75_000)
    await world.echo(client, 4)
    assert await world.senders(4) == [0, 1, 2, 3]


async def test_a_session_can_be_gone_for_two_requests_at_once(world: Any) -> None:
    client = await world.join()
    await world.until(lambda: world.server.attended(0))
    for _ in range(5):
        client._gone()
        await asyncio.sleep(0)
    assert (await world.asked(client, 0)).header.client == 0


async def test_a_join_that_is_repeated_in_a_new_session_gets_every_dispatch(world: Any) -> None:
    """The answer to the first one never came."""
    client = await world.join()
    async with world.echoing(client):
        world.ask(0, 0)
        await world.taken()
        (session,) = world.server._sessions
        world.server._sessions.retire(session, "it was away for too long")
        async with peer(world, joins=False) as lost:
            lost.headers = {"Fedsim-Session": session.secret}
            assert await lost.request("POST", "/join", hello()) == 200
        session.abort()
        world.ask(0, 1)  # has the number in the new outbox that the process has read in the old one
        assert (await world.taken()).header.dispatch == 1


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
