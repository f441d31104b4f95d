"""``--track`` and ``fedsim track``, with a tracker that writes a line for each thing that it is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from fedsim.trackers import tensorboard
from fedsim.trackers.base import Follower, Point, TrackedRun

Call = Callable[..., Result]


class Lines(Follower):
    def __init__(self, lines: list[str], run: TrackedRun) -> None:
        self.lines = lines
        self.run = f"{run.group}/{run.name}"

    def note(self, point: Point) -> None:
        self.lines.append(f"{self.run} {point.round}")

    def close(self, summary: Mapping[str, Any] | None) -> None:
        self.lines.append(f"{self.run} {'failed' if summary is None else 'ended'}")


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the tracker ``tensorboard`` writes."""
    found: list[str] = []
    monkeypatch.setattr(tensorboard.PLUGIN, "open", lambda self, run: Lines(found, run))
    return found


def told(run: str, rounds: int = 2) -> list[str]:
    return [f"{run} {what}" for what in (*range(1, rounds + 1), "ended")]


def test_a_run_is_tracked_while_it_goes_on(call: Call, here: Path, lines: list[str]) -> None:
    result = call("run", "tiny.toml", "-q", "--track", "tensorboard")
    assert result.exit_code == 0, result.output
    assert lines == told("tiny/fedavg-seed0")
    # It is the same run with and without: its place is its own.
    assert call("run", "tiny.toml", "-q").exit_code == 0
    assert [path.name for path in (here / "runs" / "tiny").iterdir()] == ["fedavg-seed0"]
    assert lines == told("tiny/fedavg-seed0")


def test_the_runs_of_a_comparison_are_tracked(call: Call, here: Path, lines: list[str]) -> None:
    result = call("compare", "tiny.toml", "-q", "--algorithms", "fedavg,local", "--track", "tensorboard")
    assert result.exit_code == 0, result.output
    assert lines == [*told("tiny/fedavg-seed0"), *told("tiny/local-seed0")]
    lines.clear()
    result = call("track", "runs/tiny", "--to", "tensorboard", "--out", "logs")
    assert result.exit_code == 0, result.output
    assert lines == [*told("tiny/fedavg-seed0"), *told("tiny/local-seed0")]
    assert result.stdout == f"tensorboard --logdir {here / 'logs'}\n"
    assert result.stderr == "tensorboard has fedavg-seed0\ntensorboard has local-seed0\n"


def test_a_tracker_that_fails_is_told_and_the_run_ends_well(
    call: Call, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Any, run: TrackedRun) -> Follower:
        raise OSError("no space left")

    monkeypatch.setattr(tensorboard.PLUGIN, "open", fail)
    result = call("run", "tiny.toml", "-q", "--track", "tensorboard")
    assert result.exit_code == 0, result.output
    said = "fedavg-seed0: tracker tensorboard failed, and the run goes on: OSError: no space left"
    assert said in result.stderr
    result = call("track", "runs/tiny", "--to", "tensorboard")
    assert result.exit_code == 2
    assert "tracker tensorboard cannot write fedavg-seed0: OSError: no space left" in result.stderr


def test_trackers_that_are_not_there(call: Call) -> None:
    for arguments in (
        ("run", "tiny.toml", "--track", "tb"),
        ("compare", "tiny.toml", "--algorithms", "local", "--track", "tb"),
        ("study", "first_to_reach", "--track", "tb"),
        ("serve", "tiny.toml", "--track", "tb"),
        ("track", ".", "--to", "tb"),
    ):
        result = call(*arguments)
        assert result.exit_code == 2
        assert "no tracker is called 'tb'" in result.stderr


def test_parameters_of_a_tracker(call: Call) -> None:
    result = call("track", ".", "--to", "wandb", "--set", "mode=off")
    assert result.exit_code == 2
    assert "params.mode: " in result.stderr
    result = call("track", ".", "--to", "wandb", "--set", "mode=online")
    assert "holds no results" in result.stderr
