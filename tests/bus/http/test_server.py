"""Both ways over loopback, without faults."""

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from fedsim.bus import Delivery
from fedsim.errors import RunError, UserError
from fedsim.network import OverheadConfig
from fedsim.wire import ModelBroadcast, ModelUpdate, pack

LARGE = 40_000  # floats: 160 kB


@pytest.mark.parametrize("num", [0, 1, 10_000, LARGE, 500_000])
async def test_a_dispatch_goes_down_and_a_reply_up(world: Any, num: int) -> None:
    """Ledger and trace hold what the bus in memory would enter."""
    client = await world.join()
    delivery = await world.asked(client, 3, num=num)
    assert delivery.header == world.down(3)
    await world.within(world.reply(client, delivery))
    reply = await world.taken()
    assert reply.header == world.down(3).reply()
    assert not world.server.rejected
    if not num:  # a header alone is free
        assert (delivery, reply.message) == (Delivery(world.down(3), None), None)
        assert (len(world.ledger), world.trace.kept) == (0, [])
        return
    array = delivery.message.params["w"]
    assert (len(array), len(reply.message.params["w"])) == (num, num)
    assert not array.flags.writeable
    assert array.ctypes.data % 16 == 0
    model = world.model(num, 3)
    messages = ModelBroadcast.of(model), ModelUpdate.of(model, num_samples=1)
    frames = [pack(one).frame(sender=-1, receiver=3, round=1, exchange="train") for one in messages]
    down, up = map(len, frames)
    (spent,) = [record[2:] for record in world.trace.kept if record[1] == "spent"]
    assert spent[:2] == (3, 0)
    assert [record[1:] for record in world.trace.kept if record[1] != "spent"] == [
        ("transfer_start", 3, 0, False, "model", down, num, False, 0),
        ("transfer_end", 3, 0, False, "delivered", ""),
        ("transfer_start", 3, 0, True, "update", up, num, False, 0),
        ("transfer_end", 3, 0, True, "delivered", ""),
    ]
    totals = world.ledger.totals()
    assert (totals.bytes_down, totals.bytes_up) == (down, up)
    assert (totals.parameters_down, totals.parameters_up) == (num, num)
    assert world.ledger.outcomes()["delivered"] == len(world.ledger) == 2


async def test_what_one_client_is_sent_and_replies_keeps_its_order(world: Any) -> None:
    """A large frame takes longer than a small one that comes after it."""
    client = await world.join()
    for dispatch, num in enumerate((10, LARGE, LARGE, 10)):
        world.ask(0, dispatch, num=num)
    world.ask(1)
    for dispatch in range(4):
        delivery = await world.got(client)
        assert delivery.header.dispatch == dispatch
        world.reply(client, delivery)
    await world.echo(client)
    got = [(await world.taken()).header for _ in range(5)]
    assert [header.dispatch for header in got if header.sender == 0] == [0, 1, 2, 3]


async def test_greeting_attendance_and_who_takes_dispatches_later(world: Any) -> None:
    client = world.client("0-4", is_ready=False)
    waiting = asyncio.ensure_future(world.server.wait_for_clients(range(5)))
    world.ask(2)
    assert await world.within(client.connect()) == b"the scenario"
    receiving = asyncio.ensure_future(world.got(client))
    await asyncio.sleep(10)
    assert (world.server.is_connected(2), waiting.done(), receiving.done()) == (False,) * 3
    world.make_ready(client)
    await world.within(waiting)
    assert (await world.within(receiving)).header.receiver == 2
    assert [world.server.is_connected(number) for number in (0, 4, 5)] == [True, True, False]
    health = {"status": "ok", "sessions": 1, "connected": 1, "clients_attended": 5}
    async with aiohttp.ClientSession() as http, http.get(f"{world.url}/health") as response:
        assert json.loads(await response.text()) == health


async def test_probes_are_apart_from_the_ledger(world: Any) -> None:
    async def answer(number: int, question: bytes) -> bytes:
        if question == b"fail":
            raise ValueError("no such state")
        return b"%d:" % number + question * 200_000

    client = await world.join("0-4")
    await world.within(world.server.wait_for_clients([3]))
    with pytest.raises(RunError, match="nobody answers probes here"):
        await world.within(world.server.probe(3, b"?", 60.0))
    client.prober = answer
    asking = asyncio.gather(*(world.server.probe(number, b"abc", 60.0) for number in range(5)))
    assert await world.within(asking) == [b"%d:" % number + b"abc" * 200_000 for number in range(5)]
    with pytest.raises(RunError, match="client 3 cannot answer: ValueError: no such state"):
        await world.server.probe(3, b"fail", 5.0)
    with pytest.raises(TimeoutError):
        await world.server.probe(7, b"abc", 0.01)  # nobody hosts it
    assert len(world.ledger) == 0


async def test_a_process_that_does_not_read_is_cut(world: Any) -> None:
    proxy = await world.proxy()
    client = await world.join(url=proxy.url)
    await world.within(world.server.wait_for_clients([0]))
    proxy.swallow(True)
    for dispatch in range(200):
        world.ask(0, dispatch, num=10_000)
    await world.until(lambda: world.server.rejected)
    assert world.server.rejected == {"silent": 1}
    proxy.swallow(False)
    for dispatch in range(200):
        assert (await world.got(client)).header.dispatch == dispatch


async def test_what_cannot_be_sent_is_refused(make_world: Any) -> None:
    world = await make_world(num_clients=4)
    with pytest.raises(UserError, match="client 9 does not exist: this run has 4 clients"):
        await world.join("0-9")
    client = await world.join("0-3")
    world.ask(0)
    with pytest.raises(ValueError, match="once"):
        world.ask(0)
    with pytest.raises(ValueError, match="from 0 to 3"):
        world.ask(4)
    with pytest.raises(ValueError, match="this process replies"):
        client.send(world.down(7).reply(), None)


@pytest.mark.parametrize(("count", "num"), [(400, 10), (60, 20_000), (4, 500_000)])
async def test_a_proxy_counts_the_bytes_of_the_modelled_overhead(world: Any, count: int, num: int) -> None:
    proxy, model = await world.proxy(), OverheadConfig(protocol="bus")
    client = await world.join(url=proxy.url)
    before = proxy.up + proxy.down
    async with world.echoing(client):
        for dispatch in range(count + 8):
            if dispatch < count:
                world.ask(dispatch % 10, dispatch, num)
            if dispatch >= 8:  # so many are under way
                await world.taken()
    columns = world.ledger.columns()
    rows = zip(columns["bytes"].tolist(), columns["up"].tolist(), strict=True)
    modelled = sum(model.stream_bytes(size, "up" if up else "down") for size, up in rows)
    await asyncio.sleep(0.1)  # until all confirmations have come
    assert proxy.up + proxy.down - before == pytest.approx(modelled, rel=0.01)


async def test_both_sides_are_told_of_an_emulation(world: Any) -> None:
    said: list[tuple[Any, bytes | None]] = []

    def note(found: Any) -> None:
        said.append((found.values, None if found.body is None else bytes(found.body)))

    one, other = await world.join("0-4"), await world.join("5-9")
    world.server.heard = one.heard = other.heard = note
    await world.within(world.server.wait_for_clients(range(10)))
    world.server.tell("piece", 7, 3, 0, 2**40, body=(b"some", b" bytes"))
    await world.until(lambda: len(said) == 1)
    other.tell("had", 7, 3, 1, 0)
    await world.until(lambda: len(said) == 2)
    one.tell("reply", 4, 0, 5, 6, body=(bytes(100_000),))
    await world.until(lambda: len(said) == 3)
    assert said == [
        (("piece", 7, 3, 0, 2**40), b"some bytes"),
        (("had", 7, 3, 1, 0), None),
        (("reply", 4, 0, 5, 6), bytes(100_000)),
    ]
    assert len(world.ledger) == 0
    assert world.trace.kept == []


async def test_nobody_is_told_where_nobody_is(world: Any) -> None:
    world.server.tell("go", 3, 0, 0, 0)
    client = world.client("0-4")
    client.tell("had", 3, 0, 0, 0)  # before it has joined
    await world.within(client.connect())
    await asyncio.sleep(10)
    assert not world.server.rejected


async def test_a_process_that_leaves_is_a_loss_of_its_clients(world: Any) -> None:
    one, _ = await world.join("0-4"), await world.join("5-9")
    await world.within(world.server.wait_for_clients(range(10)))
    losing = asyncio.ensure_future(world.server.wait_for_loss([2, 3, 8]))
    others = asyncio.ensure_future(world.server.wait_for_loss([7, 8]))
    await asyncio.sleep(10)
    assert not losing.done()
    await one.close(1.0)
    assert await world.within(losing) == 2
    await asyncio.sleep(10)
    assert not others.done()
    others.cancel()
