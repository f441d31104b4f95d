"""``fedsim validate``, and the options of emulations."""

import json
import os
import sys
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from fedsim.runtime.run import run
from tests.cli.conftest import Call, left


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ("run", "tiny.toml", "--emulate"),
            "--emulate holds client processes to their devices, and without --bus http there are none: give "
            "--bus http too, or leave it out",
        ),
        (("run", "tiny.toml", "--speed-up", "2"), "without --bus http there are none"),
        (
            ("run", "tiny.toml", "--bus", "http", "--speed-up", "2"),
            "--speed-up is for emulations: give --emulate too, or leave it out",
        ),
        (("serve", "tiny.toml", "--speed-up", "2"), "--speed-up is for emulations: give --emulate too"),
        (
            ("validate", "tiny.toml", "--speed-up", "2", "--without-emulation"),
            "--speed-up is for emulations: leave it out, or leave out --without-emulation",
        ),
        (
            ("validate", "tiny.toml", "--set", "run.rounds=1"),
            "run.rounds: one round does not show how errors differ from round to round: write 2 or more",
        ),
        (("validate", "tiny.toml", "--set", "network.model=none"), "network.model: 'none' has no links"),
        (("validate", "tiny.toml", "--speed-up", "1e7"), "a speed-up of 1e+07"),
        (
            ("run", "tiny.toml", "--bus", "http", "--emulate", "--set", "network.model=none"),
            "network.model: 'none' has no links that could be emulated: write 'fluid' or 'naive'",
        ),
    ],
)
def test_options_that_do_not_fit_are_refused(
    arguments: tuple[str, ...], told: str, call: Call, here: Path
) -> None:
    result = call(*arguments)
    assert result.exit_code == 2, result.output
    assert told in " ".join(result.stderr.split())
    assert left(here) == ["tiny.toml"]


@pytest.mark.parametrize("speed_up", ["0", "-1", "fast"])
@pytest.mark.parametrize("command", [("validate",), ("run", "--bus", "http", "--emulate")])
def test_a_speed_up_is_a_number_above_0(command: tuple[str, ...], speed_up: str, call: Call) -> None:
    result = call(command[0], "tiny.toml", *command[1:], "--speed-up", speed_up)
    assert result.exit_code == 2
    assert "--speed-up" in result.stderr


class SimulatedAgain:
    """In place of processes: the same simulation."""

    made: list[tuple[int, float | None]]

    def __init__(self, plan: Any) -> None:
        self.plan = plan

    @classmethod
    def with_children(cls, plan: Any, processes: int, speed_up: float | None) -> "SimulatedAgain":
        cls.made.append((processes, speed_up))
        return cls(plan)

    def __call__(self, parts: Any, *, complete: Any, names: Any = None, **observers: Any) -> Any:
        result = run(parts, **observers)
        complete(result)
        return result


@pytest.fixture
def again(monkeypatch: pytest.MonkeyPatch) -> type[SimulatedAgain]:
    SimulatedAgain.made = []
    monkeypatch.setattr("fedsim.studies.validation_runs.ServerProcess", SimulatedAgain)
    return SimulatedAgain


def test_a_validation_leaves_its_runs_and_a_report(call: Call, here: Path, again: Any) -> None:
    result = call("validate", "tiny.toml", "--algorithms", "fedavg,fedmd", "--quiet", "--speed-up", "3")
    assert result.exit_code == 0, result.output
    assert again.made == [(2, 3.0)] * 2
    folder = here / "runs" / "tiny" / "validation"
    pairs = json.loads((folder / "validation.json").read_text())
    assert pairs == {
        name: [f"{kind}/{name}-seed0" for kind in ("simulated", "emulated")] for name in ("fedavg", "fedmd")
    }
    for pair in pairs.values():
        for name in pair:
            assert (folder / name / "summary.json").exists()
    assert left(folder) == ["emulated", "report.html", "simulated", "validation.json"]
    said = " ".join(result.stdout.split())
    assert "2 of 2 predictions agreed. The largest error of a run's time is +0.00 %" in said
    assert (folder / "report.html").read_text().count("Error of each round")
    # Another one finds another place.
    assert call("validate", "tiny.toml", "--quiet", "--processes", "3", "--seed", "5").exit_code == 0
    assert again.made[2:] == [(3, 1.0)]
    assert len(left(here / "runs" / "tiny")) == 2
    assert call("report", str(folder)).exit_code == 0


def test_a_prediction_that_disagrees_is_a_status_and_is_said(
    call: Call, again: Any, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # All that is said of runs without emulation are bytes, models and the time of computing.
    counts = cycle((100, 99))
    monkeypatch.setattr("fedsim.report.validation._sent", lambda summary: next(counts))
    result = call("validate", "tiny.toml", "--quiet", "--without-emulation", "--out", "there")
    assert result.exit_code == 1, result.output
    assert again.made == [(2, None)]
    assert "note: fedavg: bytes: 100 predicted, 99 sent" in " ".join(result.stderr.split())
    assert "0 of 1 prediction agreed" in result.stdout
    assert left(here / "there") == ["real", "report.html", "simulated", "validation.json"]


def test_results_that_are_there_stay(call: Call, again: Any, here: Path) -> None:
    (here / "there" / "simulated" / "fedavg-seed0").mkdir(parents=True)
    (here / "there" / "simulated" / "fedavg-seed0" / "mine").write_text("it")
    result = call("validate", "tiny.toml", "--quiet", "--out", "there")
    assert result.exit_code == 2, result.output
    assert (here / "there" / "simulated" / "fedavg-seed0" / "mine").read_text() == "it"


SLOW_LINKS = (
    *("--set", "network.model=fluid", "--set", "run.rounds=3", "--set", "evaluation.every=3"),
    *("--set", "fleet.0.up=200 kbit/s", "--set", "fleet.0.down=200 kbit/s"),
)


@pytest.mark.slow
def test_a_scenario_is_validated_between_processes(
    call: Call, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(place for place in sys.path if place))
    result = call("validate", "tiny.toml", *SLOW_LINKS, "--out", "there", "--quiet")
    (pair,) = json.loads((here / "there" / "validation.json").read_text()).values()
    both = [json.loads((here / "there" / name / "summary.json").read_text()) for name in pair]
    assert both[0]["model_hash"] == both[1]["model_hash"]
    assert both[0]["bytes_up"] == both[1]["bytes_up"]
    assert both[1]["emulation"]["num_dispatches"] == 12
    # On a host that is busy nothing may be said.
    assert result.exit_code == 0 or "no verdict" in result.stdout, result.output
    assert json.loads((here / "there" / pair[1] / "run.json").read_text())["bus"] == "http"
