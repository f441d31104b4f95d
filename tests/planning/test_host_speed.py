"""What this machine trains is timed for each model, kind of layer and size of batches."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fedsim.fleet.device_table import read_table
from fedsim.planning import host_speed
from fedsim.planning.host_speed import HostSpeed, device_of, host_csv, host_speeds, host_table, loopback
from fedsim.scenario import build
from fedsim.scenario.load import load_scenario

SCENARIO: dict[str, Any] = {
    "run": {"name": "host", "rounds": 1},
    "data": {"name": "digits", "limit": 100},
    "models": {"mlp": {"params": {"hidden": [16]}}, "linear": {}},
    "training": {"batch_size": 8},
    "algorithm": {"name": "local"},
    "fleet": [{"count": 2, "device": "high", "models": {"mlp": 1, "linear": 1}}],
}

FOUND = [
    HostSpeed("mlp", "Linear", 8, 1e6, 0.001, 0.002),
    HostSpeed("mlp", "Linear", 8, 1e6, 0.0005, 0.0, is_whole=False),
    HostSpeed("mlp", "Linear", 32, 4e6, 0.001, 0.004),
    HostSpeed("linear", "Linear", 8, 1e6, 0.004, 0.004),
]


def test_each_model_is_timed_with_three_sizes_of_batches() -> None:
    # A digit has 64 values. A product counts 2 forward, 2 for the weights, and 2 for inputs but the first.
    found = host_speeds(build(load_scenario(SCENARIO)))
    steps = {(one.model, one.batch_size): one for one in found if one.is_whole}
    assert set(steps) == {(model, size) for model in ("mlp", "linear") for size in (2, 8, 32)}
    assert {one.layers for one in found} == {"Linear"}
    for (model, size), one in steps.items():
        products = 4 * 64 * 10 if model == "linear" else 4 * 64 * 16 + 6 * 16 * 10
        assert one.flops == size * products
        assert one.step_s > 0
        assert one.overhead_s >= 0
    alone = [one for one in found if not one.is_whole]
    assert {(one.model, one.batch_size) for one in alone} == set(steps)
    assert all(one.speed > 0 for one in alone)


def test_a_device_has_the_medians_at_the_scenarios_batch() -> None:
    assert device_of(FOUND, 8) == pytest.approx((6.25e8, 0.003))


def test_it_is_said_how_wrong_one_speed_is() -> None:
    (note,) = host_table(FOUND, 8).notes
    # 4e9 of the larger batch against 6.25e8.
    assert note.endswith("one speed is wrong by up to 6.4 times")
    assert [row[1] for row in host_table(FOUND, 8).rows] == [
        "training step",
        "Linear alone",
        *["training step"] * 2,
    ]


def test_a_fleet_file_of_this_machine_can_be_read(tmp_path: Path) -> None:
    file = tmp_path / "host.csv"
    file.write_text(host_csv(FOUND, 8, 2e9, 1e9, 0.0001), "utf-8")
    columns = read_table(str(file)).columns
    values = {name: float(column[0]) for name, column in columns.items()}
    assert values["speed"] == pytest.approx(6.25e8)
    assert values["overhead"] == pytest.approx(0.003)
    assert values["memory"] == 2e9
    assert values["up"] == values["down"] == 1e9
    assert values["latency"] == pytest.approx(0.0001)


def test_a_loopback_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_speed, "MOVED_BYTES", 1 << 16)
    rate_bps, latency_s = asyncio.run(loopback())
    assert rate_bps > 0
    assert 0 < latency_s < 1
