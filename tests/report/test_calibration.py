"""Devices and links are found again from runs whose values are known."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedsim
from fedsim.errors import OutputError
from fedsim.fleet.device_table import read_table
from fedsim.report.calibration import calibrate, fit_line, fleet_csv, server_latency_s, table

SIZES = np.array([1e4, 1e5, 1e6] * 4)
ONE_EACH = np.ones(12)
PROBE = {"frame_bytes": [10_000, 100_000, 1_000_000], "steps": [1, 4, 16]}


@given(fixed_s=st.floats(0.001, 1.0), rate=st.floats(1e5, 1e9))
def test_a_line_is_found_again(fixed_s: float, rate: float) -> None:
    fit = fit_line(ONE_EACH, SIZES, fixed_s + SIZES / rate)
    assert fit.is_apart
    assert fit.fixed_s == pytest.approx(fixed_s, rel=1e-6)
    # Of a rate whose times are far below the fixed ones, floating point leaves fewer digits.
    assert fit.per_second == pytest.approx(rate, rel=1e-4)
    assert fit.sigma < 1e-6
    np.testing.assert_allclose(fit.seconds(ONE_EACH, SIZES), fixed_s + SIZES / rate, rtol=1e-6)


def test_each_of_several_jobs_has_the_overhead() -> None:
    counts = np.array([1.0, 2.0, 3.0, 4.0])
    sizes = np.array([1e6, 8e6, 2e6, 9e6])
    fit = fit_line(counts, sizes, 0.2 * counts + sizes / 1e6)
    assert (fit.fixed_s, fit.per_second) == pytest.approx((0.2, 1e6))


def test_sizes_that_are_alike_tell_one_number() -> None:
    sizes = np.array([100.0, 100.0, 120.0, 120.0])
    fit = fit_line(np.ones(4), sizes, 0.5 + sizes / 100)
    assert not fit.is_apart
    assert fit.fixed_s == 0
    assert fit.per_second == pytest.approx(np.median(sizes / (0.5 + sizes / 100)), rel=0.01)


def test_a_transfer_that_shared_its_link_is_left_out() -> None:
    seconds = 0.1 + SIZES / 1e6
    seconds[5] *= 3
    fit = fit_line(ONE_EACH, SIZES, seconds)
    assert (fit.fixed_s, fit.per_second) == pytest.approx((0.1, 1e6))


@given(st.lists(st.floats(0.5, 2.0), min_size=12, max_size=12))
def test_noise_becomes_the_spread(factors: list[float]) -> None:
    fit = fit_line(ONE_EACH, SIZES, np.array(factors) * (0.1 + SIZES / 1e6))
    assert fit.fixed_s >= 0
    assert fit.per_second > 0
    assert 0 <= fit.sigma < np.log(16)


def scenario(**changes: Any) -> dict[str, Any]:
    return {
        "run": {"name": "probes", "rounds": 18},
        "data": {"name": "digits", "limit": 400},
        "models": {"mlp": {"params": {"hidden": [64]}}},
        "training": {"lr": 0.1, "batch_size": 16},
        "algorithm": {"name": "fedsim.planning.probe.Probe", "params": PROBE},
        "participation": {"clients_per_round": 2},
        "evaluation": {"every": 0},
        "engine": {"executor": "null"},
        "server": {"latency": "2 ms"},
        "fleet": [
            device(
                "old", speed="1 MFLOP/s", overhead="50 ms", up="6 Mbit/s", down="20 Mbit/s", latency="40 ms"
            ),
            device(
                "new", speed="4 MFLOP/s", overhead="20 ms", up="9 Mbit/s", down="60 Mbit/s", latency="15 ms"
            ),
        ],
        **changes,
    }


def device(name: str, **values: str) -> dict[str, Any]:
    return {"name": name, "count": 2, "device": "high", "variation": 0.0, **values}


def measured(folder: Path, **changes: Any) -> Path:
    """Return the folder of a run that passes for a real one, whose times are those of its devices."""
    fedsim.run(scenario(**changes), out=folder)
    for name, values in (("run.json", {"bus": "http"}), ("summary.json", {"emulation": {}})):
        file = folder / name
        file.write_text(json.dumps(json.loads(file.read_text("utf-8")) | values), "utf-8")
    return folder


def test_devices_that_nobody_has_told_are_found(tmp_path: Path) -> None:
    folder = measured(tmp_path / "run")
    found = {one.name: one for one in calibrate(folder)}
    assert {name: one.num_clients for name, one in found.items()} == {"old": 2, "new": 2}
    assert server_latency_s(folder) == 0.002
    for name, speed, overhead_s, up, down, latency_s in (
        ("old", 1e6, 0.05, 6e6, 20e6, 0.04),
        ("new", 4e6, 0.02, 9e6, 60e6, 0.015),
    ):
        one = found[name]
        assert one.jobs.per_second == pytest.approx(speed, rel=0.01)
        assert one.jobs.fixed_s == pytest.approx(overhead_s, rel=0.02)
        assert one.up.per_second == pytest.approx(up, rel=0.01)
        assert one.down.per_second == pytest.approx(down, rel=0.01)
        assert one.latency_s == pytest.approx(latency_s + 0.002, rel=0.02)
        assert np.median(np.abs(one.errors)) < 0.01
    shown = table(list(found.values()))
    assert len(shown.rows) == 2
    assert not any("too much alike" in note for note in shown.notes)


def test_a_fleet_file_has_what_was_found_without_the_servers_door(tmp_path: Path) -> None:
    folder = measured(tmp_path / "run")
    file = tmp_path / "fleet.csv"
    file.write_text(fleet_csv(calibrate(folder), server_latency_s(folder)), "utf-8")
    columns = read_table(str(file)).columns
    np.testing.assert_allclose(sorted(columns["speed"]), [1e6, 4e6], rtol=0.01)
    np.testing.assert_allclose(sorted(columns["latency"]), [0.015, 0.04], rtol=0.02)
    again = scenario(algorithm={"name": "fedavg"}, fleet=[{"count": 3, "file": str(file)}])
    assert fedsim.run(again, overrides={"run.rounds": 1}).summary["rounds"] == 1


def test_by_client_there_is_a_row_for_each(tmp_path: Path) -> None:
    found = calibrate(measured(tmp_path / "run"), "client")
    assert [one.name for one in found] == ["0", "1", "2", "3"]
    lines = fleet_csv(found, 0.0, 4).splitlines()
    assert lines[0].startswith("label,speed_gflops")
    assert [line.partition(",")[0] for line in lines[1:]] == ["0", "1", "2", "3"]
    with pytest.raises(OutputError, match="1 of 4 clients have too few replies"):
        fleet_csv(found[1:], 0.0, 4)


def test_of_plain_uploads_the_first_message_has_no_time(tmp_path: Path) -> None:
    folder = measured(tmp_path / "run")
    file = folder / "summary.json"
    file.write_text(json.dumps(json.loads(file.read_text("utf-8")) | {"emulation": None}), "utf-8")
    old, _ = calibrate(folder)
    # Of three lengths the longest alone is more than a message, and here its whole time counts.
    assert not old.up.is_apart
    seconds = 0.042 + 8 * (1_000_000 + 300) / 6e6
    assert old.up.per_second == pytest.approx(8 * (1_000_000 + 300 - 262_144) / seconds, rel=0.02)
    short = {"frame_bytes": [1000, 2000, 4000], "steps": [1, 4, 16]}
    folder = measured(tmp_path / "short", algorithm=scenario()["algorithm"] | {"params": short})
    file = folder / "summary.json"
    file.write_text(json.dumps(json.loads(file.read_text("utf-8")) | {"emulation": None}), "utf-8")
    (row, _) = table(found := calibrate(folder)).rows
    assert row[5] == "-"
    assert (
        fleet_csv(found, 0.0).splitlines()[1].split(",")[4:6] == [f"{found[0].down.per_second / 1e6:.6g}"] * 2
    )


def test_frames_of_one_length_tell_sums_alone(tmp_path: Path) -> None:
    shown = table(calibrate(measured(tmp_path / "run", algorithm={"name": "fedavg"})))
    assert any("too much alike to tell" in note for note in shown.notes)
    assert {row[6] for row in shown.rows} == {"-"}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"run": {"name": "probes", "rounds": 1}}, "replies of 1 round, and one half of the rounds predicts"),
        ({"algorithm": {"name": "local"}}, "no dispatch with a download and a job"),
    ],
)
def test_what_says_too_little_is_refused(tmp_path: Path, changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(OutputError, match=problem):
        calibrate(measured(tmp_path / "run", **changes))


def test_a_simulation_is_no_measurement(tmp_path: Path) -> None:
    fedsim.run(scenario(run={"name": "probes", "rounds": 2}), out=tmp_path / "run")
    with pytest.raises(OutputError, match="is a simulation, whose times are those of its scenario"):
        calibrate(tmp_path / "run")


def test_devices_with_too_few_replies_are_named(tmp_path: Path) -> None:
    said: list[str] = []
    changes = {"participation": {"clients_per_round": 1}, "run": {"name": "probes", "rounds": 2, "seed": 1}}
    folder = measured(tmp_path / "run", **changes)
    with pytest.raises(OutputError, match="no device has replies in both halves of the rounds"):
        calibrate(folder, "client", said.append)
    assert said == ["left out, since they have too few replies: 0, 1, 2, 3"]


def test_the_rate_of_a_line_without_a_fixed_part_is_that_of_all_times() -> None:
    # Fitted freely, the fixed part would be negative, and the rate too low.
    seconds = SIZES / 1e6
    seconds[SIZES == 1e4] /= 4
    fit = fit_line(ONE_EACH, SIZES, seconds)
    assert (fit.fixed_s, fit.per_second) == pytest.approx((0.0, 1e6))
