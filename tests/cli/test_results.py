"""``fedsim report``, ``timeline``, ``diff`` and ``track``, and ``--track``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fedsim.trackers import tensorboard
from fedsim.trackers.base import Follower, Point, TrackedRun
from tests.cli.conftest import Call


def test_it_says_where_the_report_is_and_how_large(call: Call, here: Path) -> None:
    assert call("run", "tiny.toml", "-q", "--out", "results").exit_code == 0
    result = call("report", "results")
    assert result.exit_code == 0, result.output
    file = here / "results.html"
    assert result.stdout == f"results.html ({round(file.stat().st_size / 1000)} kB)\n"
    # It is a report, so it is replaced.
    assert call("report", "results").exit_code == 0
    # The run can be done again to the same place.
    assert call("run", "tiny.toml", "-q", "--out", "results").exit_code == 0


def test_a_run_is_shown_client_by_client_in_the_rounds_that_are_chosen(call: Call, here: Path) -> None:
    assert call("run", "tiny.toml", "-q", "--set", "run.rounds=3", "--out", "results").exit_code == 0
    for rounds, title in (("2:3", "rounds 2 to 3"), ("3", "round 3")):
        assert call("report", "results", "--rounds", rounds).exit_code == 0
        assert f"Clients by phase, {title}" in (here / "results.html").read_text()
    for rounds, said in (
        ("3:2", "'3:2' ends before it begins: write the first round, then the last, as in 20:40"),
        ("2:", "'' is not a whole number"),
        ("0:2", "'0' is below 1"),
        ("2:9", "this run has no round 9, it ended with round 3: choose rounds from 1 to 3"),
    ):
        result = call("report", "results", "--rounds", rounds)
        assert result.exit_code == 2
        assert said in " ".join(result.stderr.split())


def test_mistakes_are_explained(call: Call, here: Path) -> None:
    result = call("report", ".")
    assert result.exit_code == 2
    assert "holds no results: name the folder of a run" in result.stderr
    assert call("run", "tiny.toml", "-q", "--out", "results").exit_code == 0
    for out, said in (
        ("tiny.toml", "tiny.toml exists already"),
        ("results/a.html", "is in the folder of a run"),
    ):
        result = call("report", "results", "--out", out)
        assert result.exit_code == 2
        assert said in result.stderr
    (here / "results" / "rounds.parquet").write_bytes(b"PAR1")
    result = call("report", "results")
    assert result.exit_code == 2
    assert "cannot be read, so these results are not whole" in result.stderr


@pytest.fixture
def run(call: Call, here: Path) -> Path:
    assert call("run", "tiny.toml", "-q").exit_code == 0
    return Path("runs", "tiny", "fedavg-seed0")


def test_a_timeline_lies_beside_the_run(call: Call, run: Path) -> None:
    result = call("timeline", str(run))
    assert result.exit_code == 0, result.output
    file = run.resolve().with_name("fedavg-seed0.pftrace")
    assert result.stdout == f"{file}\n"
    assert "4 clients, " in result.stderr
    assert "open it at https://ui.perfetto.dev" in result.stderr
    content = file.read_bytes()
    assert call("timeline", f"{run}/", "--out", "there.pftrace").exit_code == 0
    assert Path("there.pftrace").read_bytes() == content
    # It is no part of the run, which is done again and replaced as before.
    assert call("run", "tiny.toml", "-q").exit_code == 0


def test_who_is_left_out_is_told(call: Call, run: Path) -> None:
    result = call("timeline", str(run), "--clients", "3")
    assert (
        "note: of 4 clients that were asked, the 1 slowest, the 1 median and the 1 fastest" in result.stderr
    )


def test_mistakes_are_told(call: Call, run: Path) -> None:
    for arguments, said in (
        ((str(run), "--clients", "2"), "'2' is below 3"),
        (("runs",), "is not the folder of a run: it holds no summary.json"),
        (("/",), "/ is not the folder of a run"),
        (("runs/tiny",), "holds 1 run: name one of them, such as runs/tiny/fedavg-seed0"),
        ((str(run), "--out", "tiny.toml"), "tiny.toml exists already, and is no timeline"),
    ):
        result = call("timeline", *arguments)
        assert result.exit_code == 2
        assert said in result.stderr


def test_a_profile_adds_the_computer_s_own_time(call: Call, here: Path) -> None:
    assert call("run", "tiny.toml", "-q", "--out", "run", "--profile").exit_code == 0
    assert call("timeline", "run").exit_code == 0
    assert b"real time of this computer" in Path("run.pftrace").read_bytes()
    # The same run may replace it, with a profile or without.
    assert call("run", "tiny.toml", "-q", "--out", "run").exit_code == 0
    assert call("timeline", "run").exit_code == 0
    assert b"real time of this computer" not in Path("run.pftrace").read_bytes()
    result = call("run", "tiny.toml", "--profile", "--bus", "http")
    assert result.exit_code == 2
    assert "leave out --profile or --bus http" in result.stderr


def test_runs_that_are_equal_and_runs_that_part(call: Call, here: Path) -> None:
    for name, *options in (("a",), ("b", "--set", "engine.workers=1"), ("c", "--seed", "1")):
        assert call("run", "tiny.toml", "-q", "--out", name, *options).exit_code == 0
    same = call("diff", "a", "b")
    assert same.exit_code == 0
    assert "the runs are equal: they have the same events, and end with the same models" in same.stdout
    assert "engine.workers  auto   1" in same.stdout
    other = call("diff", "a", "c")
    assert other.exit_code == 1
    assert "run.seed  0      1" in other.stdout
    assert "  first   0." in other.stdout
    assert "  second  0." in other.stdout
    assert other.stderr == ""
    for arguments in (("a", "nowhere"), ("nowhere", "a")):
        result = call("diff", *arguments)
        assert result.exit_code == 2
        assert "nowhere is not the folder of a run: it holds no summary.json" in result.stderr


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
