"""A process whose join was answered, and to which the answer never came."""

from __future__ import annotations

from typing import Any

from fedsim.bus.http.access import ClientRanges
from fedsim.bus.http.messages import join_request
from tests.bus.http.peer import peer


async def test_a_join_that_is_repeated_in_a_new_session_gets_every_dispatch(world: Any) -> None:
    client = await world.join()
    async with world.echoing(client):
        world.ask(0, 0)
        await world.taken()
        (session,) = world.server._sessions
        world.server._sessions.retire(session, "it was away for too long")
        async with peer(world, joins=False) as lost:
            lost.headers = {"Fedsim-Session": session.secret}
            assert await lost.request("POST", "/join", join_request(ClientRanges.parse("0-9"))) == 200
        session.abort()
        world.ask(0, 1)  # has the number in the new outbox that the process has read in the old one
        assert (await world.taken()).header.dispatch == 1
