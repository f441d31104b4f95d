"""How long clients take at least."""

from typing import Any

import numpy as np
import pytest

from fedsim.clock import Trace
from fedsim.runtime.least_times import least_times_s
from fedsim.runtime.run import run
from fedsim.scenario import build, load_scenario

LATENCY_S = 0.125
"""Latency of client 1; that of client k is k times as long."""


def parts_of(**changes: Any) -> Any:
    tables = {
        "run": {"rounds": 1},
        "data": {"name": "sizes", "params": {"samples": 30, "input_shape": [8], "num_classes": 3}},
        "models": {"small": {"name": "mlp", "params": {"hidden": [4]}}, "large": {"name": "mlp"}},
        "algorithm": {"name": "local"},
        "training": {"batch_size": 10, "epochs": 2},
        "fleet": [
            {"count": 1, "model": "large", "speed": "1 MFLOP/s", "overhead": "250 ms", "variation": 0.5},
            {"count": 2, "model": "large", "speed": "2 MFLOP/s"},
            {"count": 1, "model": "large", "speed": "8 MFLOP/s", "efficiency": 0.5},
        ],
        "engine": {"executor": "null"},
        **changes,
    }
    return build(load_scenario(tables))


def times_s(parts: Any, steps: int) -> list[float]:
    clients = parts.eligible()
    devices = parts.fleet, parts.data, parts.architectures, parts.training
    return list(least_times_s(*devices, clients, lambda client: LATENCY_S * client, steps))


def test_they_are_those_of_the_cheapest_architecture_fastest_devices_first() -> None:
    parts = parts_of()
    trace = Trace(keep=True)
    run(parts_of(models={"large": {"name": "mlp", "params": {"hidden": [4]}}}), trace=trace)
    flops = next(values[5] for values in trace.kept if values[1] == "job_start") / 6  # of one of its steps
    per_step = np.array([flops / 4e6, flops / 2e6, flops / 2e6, flops / 1e6])
    others = [3 * LATENCY_S, LATENCY_S, 2 * LATENCY_S, 0.25]
    assert times_s(parts, 1) == pytest.approx(per_step + others)
    assert times_s(parts, 5) == pytest.approx(5 * per_step + others)
    # As many as the training asks for at most: six.
    assert times_s(parts, 100) == pytest.approx(6 * per_step + others)


def test_a_load_counts_at_its_mean() -> None:
    entry = {"count": 1, "speed": "1 MFLOP/s", "model": "large"}
    doubled = {**entry, "load": {"distribution": "exponential", "mean": 2.0}}
    (plain,), (loaded,) = (times_s(parts_of(fleet=[one]), 2) for one in (entry, doubled))
    assert loaded == pytest.approx(2 * plain)
