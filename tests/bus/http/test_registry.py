"""Who gets which clients."""

from __future__ import annotations

import asyncio

import pytest

from fedsim.bus.http.access import ALL_CLIENTS
from fedsim.bus.http.control import PROTOCOL, Control
from fedsim.bus.http.limits import HttpLimits
from fedsim.bus.http.registry import Busy, Registry


def _hello(session: str) -> Control:
    values = {"proto": PROTOCOL, "session": session * 32, "clients": "0-4", "last": 0, "base": 0}
    return Control("hello", values, memoryview(b""))


async def test_a_process_between_two_connections_keeps_its_clients() -> None:
    registry = Registry(10, HttpLimits(hold_s=5.0), lambda peer, why: None)
    first, resumed = registry.admit(_hello("a"), ALL_CLIENTS, None)
    assert not resumed
    first.gone_at = asyncio.get_running_loop().time()
    with pytest.raises(Busy, match="0-4 may come back"):
        registry.admit(_hello("b"), ALL_CLIENTS, None)
    assert registry.admit(_hello("a"), ALL_CLIENTS, None) == (first, True)
    assert registry.owner(3) is first


@pytest.mark.parametrize(("gone_for_s", "has_left"), [(6.0, False), (0.0, True)])
async def test_who_is_away_for_long_or_has_left_loses_them(gone_for_s: float, has_left: bool) -> None:
    retired = []
    registry = Registry(10, HttpLimits(hold_s=5.0), lambda peer, why: retired.append(peer))
    first, _ = registry.admit(_hello("a"), ALL_CLIENTS, None)
    first.gone_at, first.has_left = asyncio.get_running_loop().time() - gone_for_s, has_left
    second, _ = registry.admit(_hello("b"), ALL_CLIENTS, None)
    assert retired == [first]
    assert registry.owner(3) is second
