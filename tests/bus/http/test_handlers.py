"""What the server makes of requests."""

from __future__ import annotations

from typing import Any

from tests.bus.http.peer import peer


async def test_bad_requests_count_as_idle_ones(make_world: Any) -> None:
    """The first two are to join and the outbox; what is refused is counted, whatever is wrong with it."""
    world = await make_world(idle_rate=1e-9, idle_burst=6)
    async with peer(world) as bad:
        found = [await bad.replies(b"\xc1"), await bad.request("GET", "/nowhere")]
        found += [await bad.put(b"", 7), await bad.request("PUT", "/query/7")]
        assert found == [400, 404, 410, 410]
        assert await bad.replies(b"\xc1") == 429
    assert world.server.rejected == {"protocol": 1, "path": 1, "unasked": 1, "rate": 1}
