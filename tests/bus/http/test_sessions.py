"""Who gets which clients."""

import asyncio

import pytest

from fedsim.bus import Header
from fedsim.bus.http.access import ALL_CLIENTS, ClientRanges
from fedsim.bus.http.limits import HttpLimits
from fedsim.bus.http.sessions import Dispatch, Refused, Session, Sessions


class World:
    """Sessions for ten clients."""

    def __init__(self, **limits: float) -> None:
        self.retired: list[Session] = []
        options = HttpLimits(**{"hold_s": 5.0, **limits})  # type: ignore[arg-type]
        self.sessions = Sessions(10, options, lambda session, why: self.retired.append(session))

    def admit(self, letter: str, clients: str = "0-4", token: str | None = None) -> tuple[Session, bool]:
        return self.sessions.admit(letter * 32, ClientRanges.parse(clients), ALL_CLIENTS, token)

    def put(self, client: int, number: int) -> Dispatch:
        now = asyncio.get_running_loop()
        header = Header(-1, client, 1, "train", number, 0)
        dispatch = Dispatch(header, None, None, now.create_future(), now.time())
        self.sessions.put(dispatch)
        return dispatch


async def test_a_process_between_two_connections_keeps_its_clients() -> None:
    world = World()
    first, resumed = world.admit("a")
    assert not resumed
    with pytest.raises(Refused, match="0-4 may come back"):
        world.admit("b")
    assert world.admit("a") == (first, False)  # the answer to its join may have been lost
    first.has_begun = True
    assert world.admit("a") == (first, True)
    for clients, token in (("0-3", None), ("0-4", "token")):
        with pytest.raises(Refused, match="belongs to another process"):
            world.admit("a", clients, token)
    assert world.sessions.owner(3) is first
    assert world.sessions.find("a" * 32, "token") is None


@pytest.mark.parametrize(("gone_for_s", "has_left"), [(6.0, False), (0.0, True)])
async def test_who_is_away_for_long_or_has_left_loses_them(gone_for_s: float, has_left: bool) -> None:
    world = World()
    waiting = world.put(1, 0)
    first, _ = world.admit("a")
    dispatches = [waiting, world.put(0, 0), world.put(1, 1), world.put(9, 0)]
    assert [one.number for one in dispatches] == [1, 2, 3, 0]
    first.gone_s, first.has_left = asyncio.get_running_loop().time() - gone_for_s, has_left
    second, _ = world.admit("b", "1-2,9")
    assert world.retired == [first]
    assert [world.sessions.owner(client) for client in (0, 1)] == [None, second]
    mine = [one.key for one in world.sessions.dispatches.values() if one.session is second]
    assert mine == [(1, 0), (1, 1), (9, 0)]
    assert second.last == 3


async def test_sessions_are_bounded() -> None:
    world = World(max_sessions=2)
    world.admit("a", "0")
    world.admit("b", "1")
    with pytest.raises(Refused, match="2 sessions are open, the limit is 2"):
        world.admit("c", "2")


async def test_requests_that_bring_nothing_are_limited_by_rate() -> None:
    session, _ = World(idle_rate=10.0, idle_burst=3).admit("a")
    for after_s, count in ((0.0, 3), (0.1, 1), (100.0, 3)):
        await asyncio.sleep(after_s)
        for _ in range(count):
            session.idle()
        with pytest.raises(Refused, match="more than 10 idle requests per second"):
            session.idle()
