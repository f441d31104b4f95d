"""Faults that the server's process draws for frames: what is recorded, and what comes to whom."""

import asyncio
from typing import Any

import pytest

from fedsim.bus.base import Delivery
from fedsim.clock import start_clock
from fedsim.network.fault_settings import FaultConfig, RetryConfig
from fedsim.network.faults import RunFault
from fedsim.rng import Key


def strike(world: Any, *faults: dict[str, Any], retry: RetryConfig | None = None) -> None:
    start_clock()
    made = [
        RunFault(FaultConfig.model_validate(one), Key.root(1).child(str(number)), None)
        for number, one in enumerate(faults)
    ]
    world.server.meet_faults(made, retry)


def told(world: Any) -> list[tuple[Any, ...]]:
    """Return the records, without instants, clients, lengths and what is spent."""
    kept = (record for record in world.trace.kept if record[1] != "spent")
    return [
        (
            kind,
            number,
            up,
            *(rest if kind == "fault" else rest[:1] if "end" in kind or "copy" in kind else ()),
        )
        for _, kind, _, number, up, *rest in kept
    ]


def always(kind: str, **settings: Any) -> dict[str, Any]:
    return {"kind": kind, "probability": 1.0, **settings}


async def test_a_lost_dispatch_never_comes_to_its_process(world: Any) -> None:
    client = await world.join()
    strike(world, always("loss", direction="down"))
    world.ask(3)
    strike(world)
    assert (await world.asked(client, 3, 1)).header.dispatch == 1
    assert told(world)[:4] == [
        ("transfer_start", 0, False),
        ("fault", 0, False, "loss"),
        ("transfer_end", 0, False, "lost"),
        ("transfer_start", 1, False),
    ]
    assert world.num_open == 1


async def test_a_lost_reply_is_acknowledged_and_goes_no_further(world: Any) -> None:
    client = await world.join()
    strike(world, always("loss", direction="up"))
    await world.within(world.reply(client, await world.asked(client, 3)))
    assert told(world)[2:] == [
        ("transfer_start", 0, True),
        ("fault", 0, True, "loss"),
        ("transfer_end", 0, True, "lost"),
    ]
    assert world.inbox.empty()
    assert world.num_open == 0


async def test_what_is_spoilt_is_sent_again_until_it_arrives_or_no_more(world: Any) -> None:
    client = await world.join()
    strike(
        world,
        always("corrupt", direction="up"),
        retry=RetryConfig.model_validate({"times": 2, "after": "3 s"}),
    )
    delivery = await world.asked(client, 3)
    began_s = asyncio.get_running_loop().time()
    await world.within(world.reply(client, delivery))
    await world.until(lambda: world.ledger.outcomes()["undecodable"] == 3)
    assert 6.0 <= asyncio.get_running_loop().time() - began_s < 9.0
    once = [("transfer_start", 0, True), ("fault", 0, True, "corrupt")]
    end = ("transfer_end", 0, True, "undecodable")
    assert told(world)[2:] == [*[*once, ("retry", 0, True), end] * 2, *once, end]
    assert world.inbox.empty()


async def test_a_duplicate_is_counted_and_comes_once(world: Any) -> None:
    client = await world.join()
    strike(world, always("duplicate"), always("duplicate", direction="up"))
    await world.within(world.reply(client, await world.asked(client, 3)))
    assert (await world.taken()).header.dispatch == 0
    assert world.inbox.empty()
    assert world.inbox_of(client).empty()

    def copies(up: bool, count: int) -> list[tuple[Any, ...]]:
        end = [("transfer_start", 0, up), ("transfer_end", 0, up, "delivered")]
        return end + [("fault", 0, up, "duplicate"), ("transfer_copy", 0, up, "delivered")] * count

    assert told(world) == copies(False, 1) + copies(True, 2)
    assert world.ledger.columns()["arrivals"].tolist() == [2, 3]


async def test_a_late_frame_waits_in_real_seconds_in_both_directions(world: Any) -> None:
    client, loop = await world.join(), asyncio.get_running_loop()
    strike(world, always("delay", delay="2 s"), always("delay", delay="1 s", direction="up"))
    began_s = loop.time()
    delivery = await world.asked(client, 3)
    assert 2.0 <= loop.time() - began_s < 3.0
    began_s = loop.time()
    world.reply(client, delivery)
    await world.taken()
    assert 3.0 <= loop.time() - began_s < 4.0
    assert [record[:4] for record in told(world) if record[0] == "fault"] == [
        ("fault", 0, False, "delay"),
        ("fault", 0, True, "delay"),
    ]


async def test_a_late_dispatch_does_not_come_after_the_next_one(world: Any) -> None:
    client = await world.join()
    strike(world, always("delay", delay="2 s"))
    world.ask(3)
    strike(world)
    await world.within(world.reply(client, await world.asked(client, 3, 1)))
    await world.until(lambda: world.ledger.outcomes()["lost"])
    assert world.inbox_of(client).empty()
    assert world.num_open == 0
    assert (await world.asked(client, 3, 2)).header.dispatch == 2


async def test_a_partition_follows_the_clock_of_the_run(world: Any) -> None:
    client = await world.join()
    strike(world, {"kind": "partition", "at": "5 s", "for": "5 s"})
    delivery = await world.asked(client, 3)
    await asyncio.sleep(6.0)
    await world.within(world.reply(client, delivery))  # has been under way since before
    world.ask(4)
    await asyncio.sleep(6.0)
    await world.asked(client, 3, 1)
    ends = [(record[2:5], record[5]) for record in world.trace.kept if record[1] == "transfer_end"]
    assert [end for end in ends if end[1] != "delivered"] == [((3, 0, True), "lost"), ((4, 0, False), "lost")]
    assert world.inbox.empty()


async def test_a_header_alone_is_struck_by_nothing(world: Any) -> None:
    client = await world.join()
    strike(world, always("loss"))
    delivery = await world.asked(client, 3, num=0)
    world.reply(client, delivery)
    assert await world.taken() == Delivery(world.down(3).reply(), None)
    assert told(world) == []


@pytest.mark.parametrize("up", [False, True])
async def test_after_the_end_of_a_run_no_frame_waits(world: Any, up: bool) -> None:
    client = await world.join()
    strike(world, always("delay", delay="5 s", direction="up" if up else "down"))
    world.ask(3)
    if up:
        await world.within(world.reply(client, await world.got(client)))
    world.server.seal()
    before = told(world)
    await asyncio.sleep(10.0)
    assert told(world) == before
    assert world.inbox.empty()
    assert (await world.asked(client, 3, 1)).header.dispatch == 1  # which is struck no more


async def test_a_process_that_comes_back_is_not_sent_what_was_lost(world: Any) -> None:
    proxy = await world.proxy()
    client = await world.join(url=proxy.url)
    strike(world, always("loss", direction="down"))
    world.ask(3)
    strike(world, always("loss", direction="up"))
    delivery = await world.asked(client, 3, 1)
    proxy.reset_all()
    await world.within(world.reply(client, delivery))
    assert [record for record in told(world) if record[0] == "fault"] == [
        ("fault", 0, False, "loss"),
        ("fault", 1, True, "loss"),
    ]
    assert world.inbox.empty()
    assert world.inbox_of(client).empty()
