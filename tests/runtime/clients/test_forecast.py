"""What a client says of its work before it begins, by hand and in runs."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.clock import Trace
from fedsim.config import Config
from fedsim.engine.training_config import TrainingConfig
from fedsim.errors import RunError, ScenarioError
from fedsim.runtime.parts import Parts
from fedsim.runtime.policies.workloads.base import Work, Workload
from fedsim.runtime.run import run
from fedsim.scenario import build, load_scenario

USUAL = 12
"""Mini-batches that the training asks for: four passes over three batches of eight samples."""


def tables(**changes: Any) -> dict[str, Any]:
    return {
        "run": {"rounds": 2},
        "data": {"name": "sizes", "params": {"samples": 24, "input_shape": [6], "num_classes": 2}},
        "models": {"linear": {}},
        "training": {"batch_size": 8, "epochs": 4},
        "network": {"model": "naive"},
        "server": {"up": "1 Tbit/s", "down": "1 Tbit/s"},
        "engine": {"executor": "null"},
        **changes,
    }


def parts_of(fleet: list[dict[str, Any]], **changes: Any) -> Parts:
    return build(load_scenario(tables(fleet=fleet, **changes)))


def fitted(deadline_s: float, min_steps: int = 1) -> dict[str, Any]:
    params = {"deadline": f"{deadline_s} s", "min_steps": min_steps}
    return {"participation": {"workload": {"name": "deadline_fitted", "params": params}}}


def worked(parts: Parts) -> list[tuple[float, float]]:
    """Return the operations of each dispatch, and how long it took, s."""
    trace = Trace(keep=True)
    table = run(parts, trace=trace).dispatches.columns()
    flops = {(one[2], one[3]): one[5] for one in trace.kept if one[1] == "job_start"}
    took_s = (table["ended_at_s"] - table["asked_at_s"]).tolist()
    names = zip(table["client"].tolist(), table["dispatch"].tolist(), strict=True)
    return [(flops[name], time_s) for name, time_s in zip(names, took_s, strict=True)]


@pytest.fixture(scope="module")
def step_flops() -> float:
    """Operations of a mini-batch."""
    return worked(parts_of([{"count": 1}]))[0][0] / USUAL


def unit(step_flops: float, **more: Any) -> dict[str, Any]:
    """Return a client that takes a second for a mini-batch, and for nothing else unless told."""
    fast = {"up": "1 Tbit/s", "down": "1 Tbit/s", "latency": "0 s", "variation": 0.0}
    return {"count": 1, "speed": f"{step_flops} FLOP/s", **fast, **more}


@pytest.mark.parametrize(
    ("deadline_s", "min_steps", "more", "steps", "took_s"),
    [
        (20.0, 1, {}, 12, 12.0),
        (12.001, 1, {}, 12, 12.0),
        (11.9, 1, {}, 11, 11.0),
        # Latency there and back, and the overhead of a job: 2.5 s.
        (7.6, 1, {"latency": "1 s", "overhead": "500 ms"}, 5, 7.5),
        (7.6, 6, {"latency": "1 s", "overhead": "500 ms"}, 6, 8.5),
        # A load counts at its mean: two seconds for a mini-batch.
        (9.1, 1, {"load": {"distribution": "lognormal", "mean": 2.0, "sigma": 0.0}}, 4, 8.0),
    ],
)
def test_by_hand(
    deadline_s: float, min_steps: int, more: dict[str, Any], steps: int, took_s: float, step_flops: float
) -> None:
    found = worked(parts_of([unit(step_flops, **more)], **fitted(deadline_s, min_steps)))
    flops, times_s = zip(*found, strict=True)
    assert flops == (steps * step_flops,) * 2
    assert times_s == pytest.approx((took_s, took_s), abs=1e-4)


def test_a_frame_is_predicted_at_its_own_length_on_its_own_link(step_flops: float) -> None:
    slow = {"down": "1 kbit/s", "up": "2 kbit/s"}
    trace = Trace(keep=True)
    run(parts_of([unit(step_flops, **slow)]), trace=trace)
    down, up = [one for one in trace.kept if one[1] == "transfer_start"][:2]
    transfers_s = 8 * (down[6] + down[9]) / 1e3 + 8 * (up[6] + up[9]) / 2e3
    for spare_s, steps in ((3.01, 3), (2.99, 2)):
        found = worked(parts_of([unit(step_flops, **slow)], **fitted(round(transfers_s + spare_s, 6))))
        assert found[0] == pytest.approx((steps * step_flops, transfers_s + steps))


def test_without_a_network_transfers_take_no_time(step_flops: float) -> None:
    there = {"network": {"model": "none"}}
    found = worked(parts_of([unit(step_flops, latency="5 s")], **fitted(3.5), **there))
    assert found[0] == pytest.approx((3 * step_flops, 3))


def test_nobody_waits_for_a_link_on_which_nothing_travels(step_flops: float) -> None:
    far = [unit(step_flops, latency="5 s")]
    found = worked(parts_of(far, **fitted(3.5), algorithm={"name": "local"}))
    assert found[0] == pytest.approx((3 * step_flops, 3))
    with pytest.raises(ScenarioError, match="the soonest reply would come after 6 s, were its frames empty"):
        parts_of(far, **fitted(3.5))


@given(
    st.lists(st.floats(0.1, 10), min_size=1, max_size=5),
    st.integers(5, 200).map(lambda tenths: tenths / 10),
    st.integers(1, 4),
)
def test_work_fits_the_deadline_or_is_the_least_and_grows_with_speed(
    step_flops: float, speeds: list[float], deadline_s: float, least: int
) -> None:
    fleet = [unit(step_flops, speed=f"{speed * step_flops} FLOP/s", latency="100 ms") for speed in speeds]
    if least / max(speeds) + 0.1 > deadline_s:
        return  # nobody can: it is refused
    found = worked(parts_of(fleet, **fitted(deadline_s, least)))[: len(speeds)]
    steps = [round(flops / step_flops) for flops, _ in found]
    for speed, number, (_, took_s) in zip(speeds, steps, found, strict=True):
        assert least <= number <= USUAL
        assert took_s <= deadline_s + 1e-6 or number == least
        assert number == USUAL or took_s + 1 / speed > deadline_s - 1e-6
    assert [number for _, number in sorted(zip(speeds, steps, strict=True))] == sorted(steps)


class Sleepy(Workload[Config]):
    async def training(self, work: Work) -> TrainingConfig:
        await asyncio.sleep(1)
        return work.training


def test_a_workload_awaits_nothing_else(step_flops: float) -> None:
    parts = replace(parts_of([unit(step_flops)]), workload=Sleepy(Config()))
    with pytest.raises(RunError, match=r"Sleepy\.training awaited a Future"):
        run(parts)
