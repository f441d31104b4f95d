"""The end of a run, and of a server: who hears of it, who is waited for, and what is entered no more."""

import asyncio
from typing import Any

import pytest

from fedsim.wire import ModelUpdate


async def test_the_end_of_the_run_is_told(world: Any) -> None:
    """Also to who joins later, and to who loses the connection just then."""
    proxy = await world.proxy()
    early, cut = await world.join("0-3"), await world.join("4", url=proxy.url)
    before = proxy.accepted
    proxy.swallow(True)  # so that the news does not get through
    world.server.finish()
    await world.within(early.over())
    world.ask(7)
    late = await world.join("5-9")
    await world.within(late.over())
    assert (world.trace.kept, len(world.ledger)) == ([], 0)  # what travels now is entered nowhere
    ending = asyncio.ensure_future(world.server.close(60.0))
    await asyncio.sleep(0.01)
    proxy.reset_all()
    proxy.swallow(False)
    await world.within(cut.over())
    await world.within(ending)
    assert proxy.accepted > before


@pytest.mark.parametrize(
    ("is_over", "has_left", "least_s", "most_s"),
    [(True, False, 2.0, 5.5), (False, False, 0.0, 0.5), (True, True, 0.0, 0.5)],
    ids=["a little, if it was killed and may come back to hear", "not if all is stopped", "not if it left"],
)
async def test_how_long_a_process_that_is_gone_is_waited_for(
    world: Any, is_over: bool, has_left: bool, least_s: float, most_s: float
) -> None:
    gone, staying = await world.join("5-9"), await world.join("0-4")
    await gone.close(5.0 if has_left else 0)
    await world.until(lambda: not world.server.is_connected(5))
    if is_over:
        world.server.finish()
        await world.within(staying.over())
    await staying.close()  # at once: it has said that it leaves
    began_s = asyncio.get_running_loop().time()
    await world.within(world.server.close(5.0))
    assert least_s <= asyncio.get_running_loop().time() - began_s <= most_s
    why = "the run is over" if is_over else "it was stopped"
    assert {"clients": "0-4", "why": why} in world.log.of("process left")


async def test_what_travels_after_the_seal_is_entered_nowhere(world: Any) -> None:
    client = await world.join()
    deliveries = [await world.asked(client, number) for number in range(3)]
    world.reply(client, deliveries[0])
    await world.taken()
    world.server.seal()
    records, rows = len(world.trace.kept), len(world.ledger)
    assert rows == 4
    world.reply(client, deliveries[1])
    await world.taken()  # who goes on receiving does
    world.ask(4)
    await client.close()
    await world.server.close(0.1)
    assert (len(world.trace.kept), len(world.ledger)) == (records, rows)


async def test_a_server_that_is_away_ends_the_patience(make_world: Any, unused_tcp_port: int) -> None:
    world = await make_world(patience_s=2.0)
    with pytest.raises(ConnectionError, match=r"no connection to .* for 2 s"):
        await world.join(url=f"http://127.0.0.1:{unused_tcp_port}")
    proxy = await world.proxy(reset_after=1)
    client = await world.join(url=proxy.url)  # the second attempt succeeds
    assert (await world.asked(client, 0)).header.receiver == 0
    proxy.swallow(True)
    await world.server.close(0.1)
    proxy.reset_all()
    proxy.swallow(False)
    with pytest.raises(ConnectionError, match="no connection to"):
        await world.within(client.over())
    await world.within(client.send(world.down(0).reply(), ModelUpdate.of(world.model(3), num_samples=1)))
    with pytest.raises(ConnectionError, match="no connection to"):  # which does not mean another scheme
        await world.join(url=proxy.url)
