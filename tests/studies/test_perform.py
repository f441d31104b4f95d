import json
import os
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from fedsim import portable_numerics, toml_writer
from fedsim.algorithms.local import Local
from fedsim.errors import OutputError, RunError
from fedsim.portable_numerics import FreshProcessError
from fedsim.report.columns import Table
from fedsim.report.keep_checkpoints import CheckpointKeeper
from fedsim.report.places import CONTENTS
from fedsim.report.unfinished_runs import read_state
from fedsim.scenario import load_each, load_scenario
from fedsim.studies import answer_files, worker
from fedsim.studies.answer_files import NOT_FINITE
from fedsim.studies.comparison_plans import plan_of
from fedsim.studies.perform import Progress, perform
from fedsim.studies.plan import load_study
from fedsim.studies.study_columns import ANSWERS, EVALUATIONS, FRONT, TUNING
from fedsim.studies.study_place import study_place
from fedsim.trackers import tensorboard, wandb
from fedsim.trackers.base import Follower, TrackedRun
from tests.conftest import rows_of

FILES = [name for name in answer_files.FILES if name != TUNING.file]
"""What is there where nothing is tuned."""

RUNS = ["fedavg-seed0", "local-seed0", "fedavg-seed1", "local-seed1"]


def left(parent: Path) -> list[str]:
    return sorted(path.name for path in parent.iterdir() if not path.name.startswith("."))


def contents(parent: Path) -> dict[str, bytes]:
    """Return the tables of a study; nothing in them depends on the host."""
    return {name: (parent / name).read_bytes() for name in FILES}


@pytest.mark.usefixtures("in_process")
def test_a_study_leaves_its_runs_and_its_answers(tiny: dict[str, Any], tmp_path: Path) -> None:
    plan, heard = load_study(tiny), list[Progress]()
    assert perform(plan, tmp_path / "o", watch=heard.append).failed == {}
    assert left(tmp_path / "o") == sorted([*RUNS, *FILES, "study.toml"])
    not_always = {"models", "real_time.msgpack", "checkpoints"}
    not_always |= {f"{name}.parquet" for name in ("classes", "confusion", "edge_messages")}
    assert left(tmp_path / "o" / RUNS[0]) == sorted(CONTENTS - not_always)
    ended = [one for one in heard if one.said]
    assert [one.run.label for one in ended if one.run] == RUNS
    assert [one.share for one in ended] == [0.25, 0.5, 0.75, 1.0]
    assert heard[1].share == pytest.approx(1 / 3 / 4)
    rows = rows_of((tmp_path / "o" / "answers.csv").read_text())
    assert [(row["variant"], row["target"], row["seeds"]) for row in rows] == [
        ("fedavg", "0.05", "2"),
        ("fedavg", "0.999", "2"),
        ("local", "0.05", "2"),
        ("local", "0.999", "2"),
    ]
    assert (rows[0]["reached"], rows[1]["reached"]) == ("2", "0")
    assert float(rows[0]["bytes_to_target"]) > 0
    assert rows[1]["time_to_target_s"] == rows[0]["time_to_target_s_minus_baseline"] == ""
    assert float(rows[2]["bytes_to_target_minus_baseline"]) == -float(rows[0]["bytes_to_target"])
    table = parquet.read_table(tmp_path / "o" / "study.parquet")
    assert table.num_rows == 4 * 3
    assert set(table["variant"].to_pylist()) == {"fedavg", "local"}


def test_a_study_goes_on_with_its_unfinished_runs(
    tiny: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CheckpointKeeper, "_is_due", lambda *_: True)
    plan = load_study(tiny)

    def interrupt(progress: Progress) -> None:
        if progress.row is not None and progress.row.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        perform(plan, tmp_path / "o", jobs=1, watch=interrupt)
    assert read_state(tmp_path / "o" / RUNS[0])["status"] == "interrupted"
    assert answer_files.read_folder(tmp_path / "o").failed.keys() == set(RUNS)
    told = list[str]()
    assert perform(plan, tmp_path / "o", jobs=1, tell=told.append).failed == {}
    assert told == [f"{tmp_path / 'o' / RUNS[0]}: the run goes on after round 1"]
    assert perform(plan, tmp_path / "whole", jobs=1).failed == {}
    assert contents(tmp_path / "o") == contents(tmp_path / "whole")


def header_of(file: Path) -> list[str]:
    return file.read_text().splitlines()[0].split(",")


def exact(table: Table) -> list[str]:
    return [name for name in table.columns if "<" not in name]


@pytest.mark.usefixtures("in_process")
def test_each_column_of_a_study_is_described_and_each_description_has_its_column(
    tiny: dict[str, Any], tmp_path: Path
) -> None:
    tune = {"seeds": [7], "training.lr": [0.5]}
    perform(load_study(tiny | {"seeds": [0], "targets": [0.05], "tune": tune}), tmp_path / "o")
    schema = parquet.read_schema(tmp_path / "o" / EVALUATIONS.file)
    assert [name for name in schema.names if name != "training.lr"] == exact(EVALUATIONS)
    for field in schema:
        described = EVALUATIONS.with_paths(["training.lr"]).column(field.name)
        assert field.metadata[b"description"].decode() == described.description
        assert field.metadata[b"unit"].decode() == described.unit
    for table in (ANSWERS, FRONT, TUNING):
        header = header_of(tmp_path / "o" / table.file)
        assert [name for name in header if name in exact(table)] == exact(table)
        table.with_paths(["training.lr"]).check(header)
    members = [name for name in header_of(tmp_path / "o" / ANSWERS.file) if name not in exact(ANSWERS)]
    assert {name.rpartition("_")[2] for name in members} == {
        *("training.lr", "low", "high", "baseline", "pairs"),
        *("time", "bytes", "seeds", "before"),
    }


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
def test_runs_are_told_to_the_trackers_of_the_base_or_of_the_caller(
    tiny: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, Path, str | None]] = []

    def fail(self: Any, run: TrackedRun) -> Follower:
        told.append((run.name, run.parent, self.config.folder))
        raise OSError("no space left")

    for module in (tensorboard, wandb):
        monkeypatch.setattr(module.PLUGIN, "open", fail)
    tiny["seeds"] = [0]
    tiny["base"]["run"]["trackers"] = [{"name": "wandb", "params": {"folder": "logs"}}]
    assert perform(load_study(tiny), tmp_path / "o").failed == {}
    assert told == [(f"{name}-seed0", tmp_path / "o", "logs") for name in ("fedavg", "local")]
    # The same runs, whoever is told of them: nothing is done again.
    assert perform(load_study(tiny).tracked(["tensorboard"]), tmp_path / "o").failed == {}
    assert len(told) == 2
    plan = load_study(tiny).tracked(["tensorboard"])
    assert perform(plan, tmp_path / "p", known_as=tmp_path / "runs").failed == {}
    assert told[2:] == [(f"{name}-seed0", tmp_path / "runs", None) for name in ("fedavg", "local")]


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize(("workers", "resolved"), [("auto", 1), (3, 3)])
def test_a_run_has_one_worker_unless_the_base_says_how_many(
    tiny: dict[str, Any], tmp_path: Path, workers: Any, resolved: int
) -> None:
    tiny["base"]["engine"] = {"workers": workers}
    perform(load_study(tiny | {"seeds": [0]}), tmp_path / "o")
    folder = tmp_path / "o" / RUNS[0]
    assert json.loads((folder / "run.json").read_text())["workers"] == resolved
    # The run is the one that the base describes, so `fedsim run` would leave the same folder.
    assert load_scenario(folder / "scenario.toml").engine.workers == workers


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
def test_the_values_of_the_grid_are_columns(tiny: dict[str, Any], tmp_path: Path) -> None:
    grid = {"training.lr": [0.1, 1], "participation.selector": ["uniform", "by_size"]}
    perform(load_study(tiny | {"seeds": [0], "grid": grid}), tmp_path / "o")
    table = parquet.read_table(tmp_path / "o" / "study.parquet")
    assert set(table["training.lr"].to_pylist()) == {0.1, 1.0}
    assert set(table["participation.selector"].to_pylist()) == {"uniform", "by_size"}
    metadata = table.schema.field("training.lr").metadata
    assert metadata[b"description"].startswith(b"Value of training.lr, which the grid gives")
    rows = rows_of((tmp_path / "o" / "answers.csv").read_text())
    assert [row["training.lr"] for row in rows[::2]] == ["0.1", "0.1", "1", "1"] * 2


@pytest.mark.usefixtures("in_process")
def test_what_is_there_is_not_done_again(
    tiny: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    perform(load_study(tiny), tmp_path / "o")
    before, heard = contents(tmp_path / "o"), list[Progress]()
    (tmp_path / "o" / TUNING.file).write_text("from when values were tuned")
    perform(load_study(tiny), tmp_path / "o", watch=heard.append)
    assert [(one.kept, one.ended) for one in heard] == [(4, 0)]
    assert contents(tmp_path / "o") == before
    assert not (tmp_path / "o" / TUNING.file).exists()
    more, heard = load_study(tiny | {"seeds": [0, 1, 2]}), []
    perform(more, tmp_path / "o", watch=heard.append)
    assert [one.run.label for one in heard if one.said and one.run] == ["fedavg-seed2", "local-seed2"]
    perform(load_study(tiny), tmp_path / "o")
    assert contents(tmp_path / "o") == before
    # What another version has left is done again.
    monkeypatch.setattr("fedsim.report.places.__version__", "0.0.9")
    perform(load_study(tiny), tmp_path / "o", watch=heard.append)
    assert heard[-1].ended == 4


def test_no_run_begins_where_this_process_cannot_compute_the_numbers(
    tiny: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise FreshProcessError("this process is not portable")

    monkeypatch.setattr(portable_numerics, "require", refuse)
    tiny["base"]["engine"] = {"numerics": "portable"}
    with pytest.raises(FreshProcessError):
        perform(load_study(tiny), tmp_path / "study")
    assert not list(tmp_path.rglob("run.json"))


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("jobs", [None, 1])
def test_a_failed_run_is_told_stops_nothing_and_is_tried_again(
    tiny: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: int | None
) -> None:
    async def fail(self: Local, *_: Any) -> Any:
        raise RunError("no such luck")

    heard = list[Progress]()
    with monkeypatch.context() as patch:
        patch.setattr(Local, "train", fail)
        if jobs == 1:  # this process does the runs
            patch.setattr("fedsim.studies.perform.WorkerPool", None)
        failed = perform(load_study(tiny), tmp_path / "o", jobs=jobs, watch=heard.append).failed
    assert list(failed) == ["local-seed0", "local-seed1"]
    assert "no such luck" in failed["local-seed0"]
    of_first = [one.row for one in heard if one.run and one.run.label == RUNS[0] and one.row]
    assert [row.round for row in of_first] == ([1, 2, 3] if jobs == 1 else [])
    assert heard[-1].share == 1.0
    rows = rows_of((tmp_path / "o" / "answers.csv").read_text())
    assert [(row["variant"], row["seeds"]) for row in rows[::2]] == [("fedavg", "2"), ("local", "0")]
    assert perform(load_study(tiny), tmp_path / "o").failed == {}
    whole = contents(tmp_path / "o")
    perform(load_study(tiny), tmp_path / "other")
    assert contents(tmp_path / "other") == whole


@pytest.mark.usefixtures("in_process")
def test_a_bug_is_a_failure_with_its_traceback(
    tiny: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(worker, "record", broken)
    failed = perform(load_study(tiny), tmp_path / "o").failed
    assert list(failed) == RUNS
    assert failed[RUNS[0]].startswith("Traceback")
    assert failed[RUNS[0]].rstrip().endswith("ZeroDivisionError: oh")


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
def test_runs_that_are_not_finite_are_told_each_time(tiny: dict[str, Any], tmp_path: Path) -> None:
    tiny["variant"] = [
        {"algorithm": "fedavg"},
        {"algorithm": "local", "set": {"training.lr": 1e6, "training.weight_decay": 1e6}},
    ]
    plan = load_study(tiny)
    for _ in range(2):
        failed = perform(plan, tmp_path / "o").failed
        assert failed == {"local-seed0": NOT_FINITE, "local-seed1": NOT_FINITE}


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
def test_other_results_are_not_written_over(
    tiny: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first = load_study(tiny)
    tiny["base"]["training"]["lr"] = 0.1
    other = load_study(tiny)
    assert study_place(first) == Path("runs/tiny")
    perform(first, Path("runs/tiny"))
    assert study_place(first) == Path("runs/tiny")
    assert study_place(other) == Path("runs/tiny-2")
    assert study_place(other, force=True) == Path("runs/tiny")
    before = contents(Path("runs/tiny"))
    with pytest.raises(OutputError, match="fedavg-seed0 holds a run already"):
        perform(other, Path("runs/tiny"))
    assert contents(Path("runs/tiny")) == before
    perform(other, Path("runs/tiny"), force=True)
    assert contents(Path("runs/tiny")) != before
    Path("mine").mkdir()
    Path("mine/answers.csv").write_text("dear")
    with pytest.raises(OutputError, match=r"answers\.csv exists already"):
        perform(first, Path("mine"))


# In this process


def test_a_comparison_lets_go_of_a_run_before_the_one_after_next(
    tiny: dict[str, Any], tmp_path: Path, collect: Callable[[], int]
) -> None:
    overrides = {"run.rounds": 1, "engine.executor": "null"}
    plan = plan_of(load_each(tiny["base"], overrides, ["fedavg", "local", "fedprox"], None))
    alive = list[weakref.ref[Any]]()

    def watch(progress: Progress) -> None:
        if progress.recorded is not None:
            alive.append(weakref.ref(progress.recorded.result.ledger))
            collect()
            assert sum(ref() is not None for ref in alive) <= 1

    perform(plan, tmp_path / "o", jobs=1, watch=watch)
    assert len(alive) == 3


@pytest.mark.parametrize("again", [False, True])
def test_runs_of_a_comparison_that_are_there_are_done_again_if_wished(
    tiny: dict[str, Any], tmp_path: Path, again: bool
) -> None:
    overrides = {"run.rounds": 1, "engine.executor": "null"}
    for algorithms in (["fedavg", "local"], ["local", "fedavg"]):
        plan, heard = plan_of(load_each(tiny["base"], overrides, algorithms, None)), list[Progress]()
        perform(plan, tmp_path / "o", jobs=1, again=again, watch=heard.append)
    assert (heard[-1].kept, heard[-1].ended) == ((0, 2) if again else (2, 0))
    document = json.loads((tmp_path / "o" / "comparison.json").read_text())
    assert [run["folder"] for run in document["runs"]] == ["local-seed0", "fedavg-seed0"]


# Real processes


@pytest.fixture
def command(tiny: dict[str, Any], tmp_path: Path) -> Callable[..., list[str]]:
    """Return a function that gives the command for a study, which is longer here."""
    tiny["base"]["run"]["rounds"] = 60
    tiny["seeds"] = [0, 1, 2]
    (tmp_path / "study.toml").write_text(toml_writer.document(tiny))
    start = [sys.executable, "-m", "fedsim", "study", str(tmp_path / "study.toml")]
    return lambda out, *more: [*start, "--out", str(tmp_path / out), *more]


def done(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603


@pytest.mark.slow
def test_the_number_of_processes_changes_no_table(command: Callable[..., list[str]], tmp_path: Path) -> None:
    for jobs in ("1", "2"):
        ended = done(command(jobs, "--jobs", jobs))
        assert ended.returncode == 0, ended.stderr
        assert "run 6 of 6: " in ended.stderr
        assert "to reach 5 %" in ended.stdout
    assert contents(tmp_path / "1") == contents(tmp_path / "2")


WAITING = """
from pathlib import Path

from fedsim.algorithms.local import Local


class Waiting(Local):
    async def train(self, *arguments):
        Path(__file__).with_name("gate").read_bytes()  # of a pipe, until somebody writes
        return await super().train(*arguments)


PLUGIN = Waiting
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_study_that_was_killed_goes_on_where_it_was(
    tiny: dict[str, Any],
    command: Callable[..., list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
) -> None:
    gate = tmp_path / "lab" / "gate"
    gate.parent.mkdir()
    gate.with_name("waiting.py").write_text(WAITING)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    tiny["variant"] = [{"algorithm": "fedavg"}, {"algorithm": "lab.waiting", "name": "waiting"}]
    (tmp_path / "study.toml").write_text(toml_writer.document(tiny))
    os.mkfifo(gate)
    with subprocess.Popen(command("o", "--jobs", "2"), stderr=subprocess.PIPE, text=True) as killed:  # noqa: S603
        assert killed.stderr is not None
        assert "6 runs, 2 at once" in killed.stderr.readline()
        assert "run 1 of 6" in killed.stderr.readline()
        killed.send_signal(number)
        said = killed.stderr.read()  # ends when the worker processes have ended, too
    assert killed.returncode == {signal.SIGKILL: -9, signal.SIGTERM: 143}[number]
    assert ("goes on from there" in said) == (number != signal.SIGKILL)
    assert not list((tmp_path / "o").glob(".fedsim-staged*"))
    # Another may have begun, whose folder is there from its beginning.
    there = [name for name in left(tmp_path / "o") if (tmp_path / "o" / name / "summary.json").exists()]
    assert there in (["fedavg-seed0"], ["fedavg-seed0", "fedavg-seed1"])  # the others wait
    gate.unlink()
    gate.touch()
    again = done(command("o"))
    assert again.returncode == 0, again.stderr
    assert f"{len(there)} of 6 runs there already" in again.stderr
    assert done(command("whole")).returncode == 0
    assert contents(tmp_path / "o") == contents(tmp_path / "whole")


@pytest.mark.slow
def test_two_of_the_same_at_once_share_the_work(command: Callable[..., list[str]], tmp_path: Path) -> None:
    both = [
        subprocess.Popen(command("o", "--jobs", "1"), stderr=subprocess.PIPE, text=True)  # noqa: S603
        for _ in range(2)
    ]
    for one in both:
        _, said = one.communicate()
        assert one.returncode == 0, said
    assert done(command("alone")).returncode == 0
    assert contents(tmp_path / "o") == contents(tmp_path / "alone")
