"""Whole runs through a proxy that does harm: each reply is merged once, and the models are memory's."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fedsim.runtime.parts import Parts
from fedsim.runtime.records.result import RunResult
from fedsim.runtime.run import kinds_of, run
from fedsim.runtime.sockets.join import host
from fedsim.runtime.sockets.serve import serve
from fedsim.scenario import Scenario, build

CLIENTS, ROUNDS = 4, 4


def parts() -> Parts:
    scenario = {
        "run": {"rounds": ROUNDS},
        "data": {"name": "digits", "limit": 300, "global_test": 0.1},
        "models": {"mlp": {"params": {"hidden": [600]}}},  # 180 kB: models travel apart
        "fleet": [{"count": CLIENTS, "device": "high"}],
        "evaluation": {"every": ROUNDS},
        "engine": {"workers": 1},
    }
    return build(Scenario.model_validate(scenario), "here")


@pytest.fixture(scope="module")
def in_memory() -> RunResult:
    return run(parts())


FAULTS: dict[str, dict[str, Any]] = {
    "latency": {"latency_s": 0.002},
    "bandwidth": {"bytes_per_s": 20e6},
    "slicing": {"slice_bytes": 700},
    "reset": {"reset_after": 500_000},
    "resets": {"slice_bytes": 1 << 13, "reset_every": 400_000},
    "stall": {"stall_after": 600_000},
    "stall downwards": {"stall_down_after": 600_000},
    "repeats": {"repeat_up": 100, "repeat_down": 100},
    "black hole": {},
}


SOON = ("resets",)
"""Those that are tried whenever tests are run: each fault alone is tried in test_faults.py."""


@pytest.mark.parametrize(
    "fault", [pytest.param(fault, marks=[] if fault in SOON else pytest.mark.slow) for fault in FAULTS]
)
async def test_each_reply_is_merged_once_under(make_world: Any, in_memory: RunResult, fault: str) -> None:
    mine, its = parts(), parts()
    world = await make_world(num_clients=CLIENTS, kinds=kinds_of(mine))
    proxy = await world.proxy(**FAULTS[fault])
    client = await world.join(f"0-{CLIENTS - 1}", url=proxy.url, kinds=kinds_of(its))
    hosting = asyncio.ensure_future(host(its, client))
    serving = asyncio.ensure_future(serve(mine, world.server, ledger=world.ledger, trace=world.trace))
    if fault == "black hole":
        await world.until(lambda: proxy.up > 500_000)
        proxy.swallow(True)
        await world.until(lambda: not world.server.attended(0))
        proxy.swallow(False)
    result = await world.within(serving)
    world.server.finish()
    await world.within(hosting)
    assert result.model_hash == in_memory.model_hash
    assert [(row.asked, row.merged) for row in result.rounds] == [(CLIENTS, CLIENTS)] * ROUNDS
    assert result.by_client["merged"].tolist() == [ROUNDS] * CLIENTS
    assert not result.drops
    assert not result.rejections
    # One row for each message and answer, however often it travelled.
    assert result.ledger.outcomes()["delivered"] == len(result.ledger) == 2 * CLIENTS * ROUNDS
    assert result.ledger.totals().bytes_up == in_memory.ledger.totals().bytes_up
    if fault.startswith(("reset", "stall", "black")):
        assert proxy.accepted > 1 + 4  # the outbox's, that of replies, and of what travels apart
