"""Connections that break, stall, trickle and come back; processes that are killed."""

from __future__ import annotations

import asyncio
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim.bus.http.state_folder import StateFolder
from fedsim.errors import FileError, UserError
from fedsim.wire import DEFAULT, ModelUpdate

LARGE = 400_000  # floats: 1.6 MB


async def echo(world: Any, client: Any) -> None:
    """Answer everything for ever."""
    while True:
        world.reply(client, await client.receive())


async def exchange(world: Any, client: Any, rounds: int, num: int, clients: int = 4) -> None:
    """Ask several clients several times, and check that each answer comes once, unharmed."""
    echoing = asyncio.ensure_future(echo(world, client))
    try:
        for dispatch in range(rounds):
            for number in range(clients):
                world.ask(number, dispatch, num)
            for _ in range(clients):
                answer = await world.within(world.server.receive())
                assert answer.header.dispatch == dispatch
                expected = answer.header.sender + dispatch / 8
                np.testing.assert_array_equal(answer.message.params["w"], np.full(num, expected, np.float32))
    finally:
        echoing.cancel()
        await asyncio.gather(echoing, return_exceptions=True)
    await world.until(lambda: world.ledger.outcomes()["delivered"] == 2 * rounds * clients)
    assert world.server._inbox.num_bytes == 0
    assert len(world.ledger) == 2 * rounds * clients


@pytest.mark.parametrize(
    ("harm", "num"),
    [
        ({"slice_bytes": 3}, 50),
        ({"slice_bytes": 1000}, 40_000),
        ({"latency_s": 0.003}, 40_000),
        ({"bytes_per_s": 20e6}, 40_000),
    ],
)
async def test_slow_and_trickling_links_change_nothing(
    make_world: Any, harm: dict[str, Any], num: int
) -> None:
    world = await make_world()
    proxy = await world.proxy(**harm)
    client = await world.join(url=proxy.url)
    await exchange(world, client, 2, num)
    assert not world.server.rejected


@pytest.mark.parametrize(
    "after",
    [300, 200_000, *(pytest.param(after, marks=pytest.mark.slow) for after in (3000, 1_000_000, 3_000_000))],
)
async def test_a_reset_in_the_middle_loses_and_repeats_nothing(make_world: Any, after: int) -> None:
    world = await make_world()
    proxy = await world.proxy(reset_after=after)
    client = await world.join(url=proxy.url)
    await exchange(world, client, 2, LARGE)
    assert proxy.harm.reset_after is None  # it has been done
    assert world.server.rejected["unasked"] == 0


@pytest.mark.parametrize(
    ("num", "after"), [(50, 20_000), pytest.param(40_000, 300_000, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("way", ["up", "down"])
async def test_a_stall_loses_and_repeats_nothing(make_world: Any, num: int, after: int, way: str) -> None:
    world = await make_world(stall_timeout_s=0.1, heartbeat_s=0.1)
    proxy = await world.proxy(slice_bytes=1 << 12)
    client = await world.join(url=proxy.url)
    harm = "stall_after" if way == "up" else "stall_down_after"
    setattr(proxy.harm, harm, getattr(proxy, way) + after)
    await exchange(world, client, 2 if num > 50 else 30, num)
    assert getattr(proxy.harm, harm) is None
    assert world.server.rejected["unasked"] == 0


async def test_a_black_hole_loses_and_repeats_nothing(make_world: Any) -> None:
    world = await make_world(heartbeat_s=0.05, stall_timeout_s=0.1)
    proxy = await world.proxy()
    client = await world.join(url=proxy.url)
    exchanging = asyncio.ensure_future(exchange(world, client, 30, 40_000))
    for _ in range(3):
        before = proxy.up
        await world.until(lambda before=before: proxy.up > before + 500_000 or exchanging.done())
        assert not exchanging.done()
        proxy.swallow(True)
        await world.until(lambda: not world.server.attended(0))
        proxy.swallow(False)
    await exchanging
    assert world.server.rejected["silent"] >= 1


@pytest.mark.slow
async def test_what_is_repeated_on_the_way_is_taken_once(make_world: Any) -> None:
    world = await make_world(idle_burst=10_000)  # a peer that repeats itself so much is turned away else
    proxy = await world.proxy(repeat_up=10**9, repeat_down=10**9)
    client = await world.join(url=proxy.url)
    await exchange(world, client, 5, 50)
    proxy.reset_all()
    await exchange_more(world, client)
    assert proxy.repeated_up >= 10
    assert proxy.repeated_down == 2
    assert set(world.server.rejected) <= {"repeated"}


async def exchange_more(world: Any, client: Any) -> None:
    """Small frames, many at a time."""
    echoing = asyncio.ensure_future(echo(world, client))
    for dispatch in range(100, 150):
        for number in range(10):
            world.ask(number, dispatch)
    got = [(await world.within(world.server.receive())).header for _ in range(500)]
    echoing.cancel()
    assert len({(header.sender, header.dispatch) for header in got}) == 500
    for number in range(10):  # each client's in order
        assert [h.dispatch for h in got if h.sender == number] == list(range(100, 150))


async def test_an_upload_goes_on_where_it_was(make_world: Any) -> None:
    world = await make_world(chunk_bytes=1 << 16)
    proxy = await world.proxy(slice_bytes=1 << 14)
    client = await world.join(url=proxy.url)
    world.ask(0, num=2_000_000)
    delivery = await world.within(client.receive())
    proxy.harm.reset_after = proxy.up + 6_000_000
    before = proxy.up
    world.reply(client, delivery)
    answer = await world.within(world.server.receive())
    assert len(answer.message.params["w"]) == 2_000_000
    # 8 MB in all: what had arrived of the first 6 was not sent again.
    assert proxy.up - before < 10_000_000
    assert proxy.harm.reset_after is None


async def test_a_download_goes_on_where_it_was(make_world: Any) -> None:
    world = await make_world(chunk_bytes=1 << 16)
    proxy = await world.proxy(slice_bytes=1 << 14)
    client = await world.join(url=proxy.url)
    world.ask(0, num=2_000_000)
    await world.until(lambda: proxy.down > 4_000_000)
    proxy.reset_all()
    delivery = await world.within(client.receive())
    assert len(delivery.message.params["w"]) == 2_000_000
    assert proxy.down < 10_000_000
    # The notice had arrived, so nothing was sent again as far as the session is concerned.
    assert world.server.retransmitted_frames == 0


async def test_silence_on_a_healthy_link_is_no_death(make_world: Any) -> None:
    world = await make_world(heartbeat_s=0.15)
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


async def test_what_was_not_answered_goes_to_the_process_that_takes_over(make_world: Any) -> None:
    world = await make_world()
    first = await world.join("0-4")
    for number in range(5):
        world.ask(number, num=40_000 if number % 2 else 10)
    deliveries = [await world.within(first.receive()) for _ in range(5)]
    world.reply(first, deliveries[2])
    await world.within(world.server.receive())
    await first.close(0)  # killed: without state it knows nothing afterwards
    second = await world.join("0-4")
    again = [await world.within(second.receive()) for _ in range(4)]
    assert [delivery.header.receiver for delivery in again] == [0, 1, 3, 4]
    assert world.server.retransmitted_frames == 4
    for delivery in again:
        world.reply(second, delivery)
    assert sorted([(await world.within(world.server.receive())).header.sender for _ in range(4)]) == [
        0,
        1,
        3,
        4,
    ]
    assert len(world.ledger) == 10


@pytest.mark.parametrize("clients", ["0-4", "4-6", "0", "0-9"])
@pytest.mark.parametrize("is_ready", [False, True])
async def test_a_second_process_is_refused_while_the_first_is_connected(
    make_world: Any, clients: str, is_ready: bool
) -> None:
    world = await make_world()
    first = await world.join("0-4", **({} if is_ready else {"kinds": None}))
    for _ in range(3):
        with pytest.raises(
            UserError, match="refuses this process: the clients 0-4 are hosted by another process"
        ) as refused:
            await world.join(clients)
        assert "after 10 s of silence" in str(refused.value)
    assert len(world.server._sessions) == 1
    first.kinds = world.kinds
    world.ask(3)
    world.reply(first, await world.within(first.receive()))
    assert (await world.within(world.server.receive())).header.sender == 3


@pytest.mark.slow
async def test_a_second_process_gets_in_once_the_first_is_known_to_be_dead(make_world: Any) -> None:
    world = await make_world(heartbeat_s=0.15)
    proxy = await world.proxy()
    first = await world.join("0-4", url=proxy.url)
    world.ask(3)
    await world.within(first.receive())
    proxy.swallow(True)  # it is cut off, as by a machine that lost its power: nobody closes the connection
    with pytest.raises(UserError, match="hosted by another process"):
        await world.join("0-4")
    await world.until(lambda: not world.server.attended(3))
    assert world.server.rejected["silent"] == 1
    second = await world.join("0-4")
    world.reply(second, await world.within(second.receive()))
    assert (await world.within(world.server.receive())).header.sender == 3
    proxy.swallow(False)  # the first was alive all the same, and is told
    proxy.reset_all()
    with pytest.raises(UserError, match="hosted by another process"):
        await world.within(first.over())
    assert world.server.attended(3)


async def test_the_sessions_name_proves_that_a_process_is_the_same(make_world: Any, tmp_path: Path) -> None:
    world = await make_world()
    proxy = await world.proxy()
    state = StateFolder(tmp_path)
    first = await world.join("0-4", url=proxy.url, state=state)
    proxy.swallow(True)  # the server does not know yet that it was killed
    again = await world.join("0-4", state=state)
    world.ask(3)
    assert (await world.within(again.receive())).header.receiver == 3
    assert len(world.server._sessions) == 1
    await first.close(0)
    state.close()


async def test_a_killed_process_takes_its_session_up_again(make_world: Any, tmp_path: Path) -> None:
    world = await make_world()
    proxy = await world.proxy()
    state = StateFolder(tmp_path / "state")
    first = await world.join("0-4", url=proxy.url, state=state)
    for number in range(5):
        world.ask(number, num=40_000)
    deliveries = [await world.within(first.receive()) for _ in range(5)]
    proxy.swallow(True)  # nothing gets through, and the process does not know
    for number in (1, 3):
        state.put(number, b"after")
        world.reply(first, deliveries[number])
    state.put(4, b"without an answer")
    await world.until(lambda: list(state._new) == [4])  # the other two are durable, with their answers
    await first.close(0)
    state.close()
    proxy.reset_all()

    state = StateFolder(tmp_path / "state")
    assert [state.get(number) for number in range(5)] == [None, b"after", None, b"after", None]
    second = await world.join("0-4", state=state)
    again = [await world.within(second.receive()) for _ in range(3)]
    assert [delivery.header.receiver for delivery in again] == [0, 2, 4]
    for delivery in again:
        world.reply(second, delivery)
    answers = [await world.within(world.server.receive()) for _ in range(5)]
    assert sorted(answer.header.sender for answer in answers) == [0, 1, 2, 3, 4]
    await world.until(lambda: not state._reply_files())  # acknowledged, so forgotten
    assert len(world.ledger) == 10
    state.close()


async def test_a_full_disk_ends_the_process_and_nothing_is_lost(
    make_world: Any, tmp_path: Path, disk: Any
) -> None:
    world = await make_world()

    async def work(folder: Path) -> None:
        """Answer what comes, until nothing is left or something fails."""
        with closing(StateFolder(folder)) as state:
            client = world.client("0", state=state)
            try:
                await client.connect()
                answering = asyncio.ensure_future(answer(client, state))
                await world.until(lambda: is_done(client, state))
                answering.cancel()
                await asyncio.gather(answering, return_exceptions=True)
                if client._failure:
                    await client.over()
            finally:
                await client.close(0)
                await world.until(lambda: not world.server.attended(0))

    def is_done(client: Any, state: StateFolder) -> bool:
        return client._failure is not None or not (world.server._dispatches or state._reply_files())

    async def answer(client: Any, state: StateFolder) -> None:
        while True:
            delivery = await client.receive()
            state.put(0, b"after")
            world.reply(client, delivery)

    async def each(number: int | None, dispatch: int) -> list[str]:
        world.ask(0, dispatch, num=10)
        folder = tmp_path / str(number)
        error = None
        calls: list[str]
        with disk.fails(number) as calls:
            try:
                await world.within(work(folder))
            except FileError as raised:
                error = raised
        assert (error is None) == (number is None), (number, calls)
        assert error is None or "No space left on device. Make room" in str(error)
        await world.within(work(folder))
        assert (await world.within(world.server.receive())).header.dispatch == dispatch
        return calls

    calls = await each(None, 0)
    assert {"open", "write", "fsync", "replace"} <= set(calls)
    for number in range(len(calls)):
        await each(number, 1 + number)


async def test_a_state_folder_belongs_to_one_run(make_world: Any, tmp_path: Path) -> None:
    one, other = await make_world(), await make_world()
    state = StateFolder(tmp_path)
    client = await one.join(state=state)
    await client.close()
    with pytest.raises(UserError, match="another run: join it anew, with an empty state folder"):
        await other.join(state=state)
    state.close()


async def test_a_session_that_is_away_for_too_long_is_forgotten(make_world: Any) -> None:
    world = await make_world(session_ttl_s=0.05, heartbeat_s=0.5)
    client = await world.join()
    world.ask(0)
    await world.within(client.receive())
    await client.close()
    left = world.ask(1)
    await world.within(left)
    assert world.ledger.outcomes() == {"in_flight": 0, "lost": 0, "undecodable": 0, "delivered": 1}
    assert len(world.ledger) == 1  # what was never put on a link has no row
    assert len(world.server._sessions) == 0


async def test_a_server_that_goes_away_ends_the_patience(make_world: Any) -> None:
    world = await make_world(patience_s=0.1)
    client = await world.join()
    await world.server.close(0.1)
    with pytest.raises(ConnectionError, match="no connection to"):
        await world.within(client.over())
    with pytest.raises(ConnectionError):
        await world.within(client.receive())
    await world.within(client.send(world.down(0).reply(), ModelUpdate.of(world.model(3), num_samples=1)))


async def test_large_replies_that_do_not_fit_together_get_through(make_world: Any) -> None:
    """Each has a share of what a session may hold, and none can go on unless others make way."""
    few = replace(DEFAULT, frame_bytes=400_000)
    world = await make_world(frame=few, session_upload_bytes=400_000, chunk_bytes=1 << 14)
    proxy = await world.proxy(slice_bytes=1 << 14)
    client = await world.join(url=proxy.url)
    for number in range(4):
        world.ask(number, num=75_000)
    for _ in range(4):
        world.reply(client, await world.within(client.receive()))
    replies = [await world.within(world.server.receive(), 20) for _ in range(4)]
    assert sorted(reply.header.sender for reply in replies) == [0, 1, 2, 3]


async def test_a_session_can_be_gone_for_two_requests_at_once(make_world: Any) -> None:
    world = await make_world()
    client = await world.join()
    await world.until(lambda: world.server.attended(0))
    for _ in range(5):
        client._gone()
        await asyncio.sleep(0)
    world.ask(0)
    assert (await world.within(client.receive())).header.client == 0


async def test_a_request_whose_body_never_leaves_is_repeated(make_world: Any) -> None:
    world = await make_world()
    client = await world.join(limits=replace(world.limits, request_timeout_s=0.01))
    tries = 0

    async def attempt() -> None:
        nonlocal tries
        tries += 1
        if tries < 3:
            await asyncio.Event().wait()

    await world.within(client._requests.persist(attempt))
    assert tries == 3
