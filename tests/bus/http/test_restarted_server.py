"""A server that is started again: processes go back to its last checkpoint."""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fedsim.bus.http.limits import HttpLimits
from fedsim.bus.http.messages import Names
from fedsim.bus.http.state_folder import StateFolder
from fedsim.bus.http.state_versions import Marks
from fedsim.errors import UserError
from fedsim.wire import COMMON, Kinds

QUICK = HttpLimits(backoff_first_s=0.005, backoff_cap_s=0.02)


class Noted:
    """States that note what they are told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Mapping[int, Any]]] = []

    def go_back(self, firsts: Mapping[int, int]) -> None:
        self.told.append(("go back", firsts))

    def forget(self, marks: Marks) -> None:
        self.told.append(("forget", {client: sorted(its) for client, its in marks.items()}))


async def restart(make_world: Any, world: Any, firsts: Mapping[int, int], names: Names | None = None) -> Any:
    """End a server without a word, and start the one after it at the same place."""
    await world.server.close(for_good=False)
    if names is None:
        names = Names(world.server.names.run, before=[world.server.names.server])
    return await make_world(port=world.port, names=names, firsts=firsts)


async def joined(world: Any, states: Noted, **options: Any) -> Any:
    client = await world.join("0-4", is_ready=False, limits=QUICK, **options)
    client.feed(world.inbox_of(client).put_nowait, Kinds(COMMON), None, states)
    return client


async def test_dispatches_and_replies_from_after_the_checkpoint_are_forgotten(make_world: Any) -> None:
    world, states = await make_world(), Noted()
    client = await joined(world, states)
    replied = await world.asked(client, 0)
    await world.asked(client, 1)  # is at work
    world.server.mark({3: [4, 5]})
    await world.until(lambda: states.told)
    await world.server.close(for_good=False)
    waiting = world.reply(client, replied)  # nobody takes it
    other = await restart(make_world, world, {2: 4})
    await other.until(lambda: other.server.is_connected(0))
    assert states.told == [("forget", {3: [4, 5]}), ("go back", {2: 4})]
    await waiting
    # The same numbers once more, and with other content.
    for number in (0, 1, 2):
        other.ask(number, 4)
        world.reply(client, await world.got(client))
    assert await other.senders(3) == [0, 1, 2]
    assert not other.server.rejected
    assert not other.log.of("states lost")
    other.server.mark({0: [5]})
    await other.until(lambda: len(states.told) == 3)
    assert states.told[2] == ("forget", {0: [5]})


async def test_who_comes_back_to_the_same_server_does_not_go_back(make_world: Any) -> None:
    world, states = await make_world(), Noted()
    proxy = await world.proxy()
    client = await world.join("0-4", proxy.url, is_ready=False, limits=QUICK)
    client.feed(world.inbox_of(client).put_nowait, Kinds(COMMON), None, states)
    await world.until(lambda: world.server.is_connected(0))
    world.server.mark({0: [2], 7: [1]})
    proxy.reset_all()
    await world.until(lambda: states.told)
    assert states.told[-1] == ("forget", {0: [2]})  # of its own clients


async def test_servers_that_a_process_has_not_met_make_no_difference(make_world: Any) -> None:
    """As long as none of them has written a checkpoint."""
    world, states = await make_world(), Noted()
    await joined(world, states)
    names = Names(world.server.names.run, before=[world.server.names.server, "another"])
    other = await restart(make_world, world, {0: 3}, names)
    await other.until(lambda: other.server.is_connected(0))
    assert states.told == [("go back", {0: 3})]
    assert not other.log.of("states lost")


async def test_what_is_of_a_server_before_the_checkpoint_is_of_no_use(make_world: Any) -> None:
    """A process that was away meanwhile cannot know which of its states count."""
    world, states = await make_world(), Noted()
    await joined(world, states)
    names = Names(world.server.names.run, before=["another"])
    other = await restart(make_world, world, {0: 3}, names)
    await other.until(lambda: other.server.is_connected(0))
    assert states.told == [("go back", {})]
    assert other.log.of("states lost") == [{"clients": "0-4"}]


@pytest.mark.parametrize("firsts", [{0: 1}, {9: 1}])
async def test_a_new_process_for_clients_that_were_asked_is_told(make_world: Any, firsts: Any) -> None:
    world = await make_world(firsts=firsts)
    await world.join("0-4")
    assert len(world.log.of("states lost")) == (0 in firsts)


async def test_another_run_is_no_run_to_go_back_in(make_world: Any) -> None:
    world, states = await make_world(), Noted()
    client = await joined(world, states)
    other = await restart(make_world, world, {}, Names())
    with pytest.raises(UserError, match="the server has begun another run"):
        await other.within(client.over())
    assert not states.told


async def test_a_state_folder_goes_back_before_anybody_reads_it(make_world: Any, tmp_path: Path) -> None:
    world = await make_world()
    with closing(StateFolder(tmp_path)) as state:
        client = await world.join("0-4", state=state)
        for place in ((0, 1), (0, 3), (1, 0), (2, 6)):
            state.put(*place, b"state")
        await client.close(0)
    other = await restart(make_world, world, {0: 2, 2: 7})
    with closing(StateFolder(tmp_path)) as state:
        await other.join("0-4", state=state)
        assert [place for place in ((0, 1), (0, 3), (1, 0), (2, 6)) if state._place(*place).exists()] == [
            (0, 1),
            (2, 6),
        ]
        assert state.server == other.server.names.server
