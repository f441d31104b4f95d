"""Trackers hear of a run what its tables say, and have no effect on it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from fedsim.errors import JobError, OutputError, UserError
from fedsim.report.record_run import record
from fedsim.report.tracking import COLUMNS, points, run_folders, track
from fedsim.runtime.parts import EvaluationConfig, Parts
from fedsim.runtime.records.result import RoundRow
from fedsim.scenario import Plan
from fedsim.trackers.base import Follower, Point, TrackedRun, Tracker, TrackerConfig

TABLES = ("rounds", "clients", "evaluations", "dispatches", "messages")


class Diary(Tracker[TrackerConfig], Follower):
    """Keeps what it is told; raises in the hook called ``ill``."""

    def __init__(self, ill: str = "") -> None:
        super().__init__(TrackerConfig())
        self.ill = ill
        self.runs: list[TrackedRun] = []
        self.points: list[Point] = []
        self.summaries: list[Mapping[str, Any] | None] = []

    def open(self, run: TrackedRun) -> Diary:
        self.runs.append(run)
        self._hook("open")
        return self

    def note(self, point: Point) -> None:
        self.points.append(point)
        self._hook("note")

    def close(self, summary: Mapping[str, Any] | None) -> None:
        self.summaries.append(summary)
        self._hook("close")

    def how_to_look(self, run: TrackedRun) -> str:
        return "look"

    def _hook(self, name: str) -> None:
        if self.ill in (name, "always"):
            raise ValueError(f"ill in {name}")


def rows(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(folder / "rounds.parquet").to_pylist()
    return found


def test_a_run_that_goes_on_is_told_as_its_folder_is(
    make_parts: Callable[..., Parts], tmp_path: Path
) -> None:
    live, later = Diary(), Diary()
    parts = make_parts("fedmd", rounds=3, evaluation=EvaluationConfig(every=2, per_class=True))
    plan = Plan("tiny", "fedmd", '[run]\nname = "tiny"\n', parts, trackers=(live,))
    done = record(plan, tmp_path / "mine" / "run")
    track(done.folder, later)
    assert live.points == later.points
    assert live.runs == later.runs == [TrackedRun("run", tmp_path / "mine", plan.scenario_toml)]
    assert live.runs[0].group == "mine"
    assert live.summaries == later.summaries == [done.summary]
    table = rows(done.folder)
    assert [point.round for point in live.points] == [row["round"] for row in table]
    assert [point.simulated_s for point in live.points] == [row["ended_at_s"] for row in table]
    sent = (done.summary[name] for name in ("bytes_up", "bytes_down", "data_up", "data_down"))
    assert live.points[-1].total_bytes == sum(sent)
    for point, row in zip(live.points, table, strict=True):
        assert point.figures["dispatches/merged"] == row["merged"]
        assert point.figures["bytes/up"] == row["bytes_up"]
        assert point.figures.get("accuracy/worst_decile") == row["accuracy_worst_decile"]
    assert {"accuracy/mean" in point.figures for point in live.points} == {True, False}
    assert live.points[-1].figures["macro_f1/clients"] == done.summary["macro_f1"]["clients"]


def test_sums_of_bytes_are_those_of_all_frames_until_then() -> None:
    row = dict.fromkeys(COLUMNS, 0) | {"accuracy_mean": None, "loss_mean": float("inf")}
    told = [
        row | {"round": 1, "ended_at_s": 2.0, "bytes_up": 1, "bytes_down": 2, "data_up": 4, "data_down": 8},
        row | {"round": 2, "ended_at_s": 3.0, "bytes_up": 16, "overhead_up": 999, "loss_mean": float("nan")},
    ]
    first, second = points(told)
    assert (first.total_bytes, second.total_bytes) == (15, 31)
    assert first.axes == {"simulated_s": 2.0, "total_bytes": 15}
    assert first.figures["loss/mean"] == float("inf")
    assert not {"accuracy/mean", "loss/mean"} & second.figures.keys()


@pytest.mark.parametrize(
    ("ill", "failures"), [("open", 1), ("note", 2), ("close", 1), ("always", 1), ("", 0)]
)
def test_a_tracker_that_fails_changes_nothing(plan: Plan, tmp_path: Path, ill: str, failures: int) -> None:
    said: list[str] = []
    well = Diary()
    tracked = replace(plan, trackers=(Diary(ill), well))
    one = record(tracked, tmp_path / "tracked", tell=said.append)
    other = record(plan, tmp_path / "plain")
    assert {**one.summary, "wall_s": 0} == {**other.summary, "wall_s": 0}
    for name in (*(f"{table}.parquet" for table in TABLES), "trace.msgpack", "log.jsonl", "scenario.toml"):
        assert (one.folder / name).read_bytes() == (other.folder / name).read_bytes()
    assert [point.round for point in well.points] == [1, 2]
    first = said[:1]
    if failures:
        assert first[0].startswith(
            "tracked: tracker tests.report.test_tracking.Diary failed, and the run goes on: "
        )
        assert "ValueError: ill in " in first[0]
    counted = ["tracked: tracker tests.report.test_tracking.Diary failed 2 times; the results are whole"]
    assert said[1:] == (counted if failures == 2 else [])
    assert "tracker_failures" not in json.loads((other.folder / "run.json").read_text())
    told = json.loads((one.folder / "run.json").read_text())["tracker_failures"]
    assert told == {"tests.report.test_tracking.Diary": 0 if ill == "close" else failures}


def test_a_run_that_fails_is_told_as_such(plan: Plan, tmp_path: Path) -> None:
    diary = Diary()

    def fail(row: RoundRow) -> None:
        raise JobError("no such luck")

    with pytest.raises(JobError, match="no such luck"):
        record(replace(plan, trackers=(diary,)), tmp_path / "run", watch=fail)
    assert (diary.points, diary.summaries) == ([], [None])


def test_results_in_a_temporary_folder_are_known_by_another(plan: Plan, tmp_path: Path) -> None:
    diary = Diary()
    place = tmp_path / "runs" / "tiny" / "fedavg-seed0"
    record(replace(plan, trackers=(diary,)), tmp_path / "run", known_as=place)
    assert [(run.name, run.group) for run in diary.runs] == [("fedavg-seed0", "tiny")]


def test_folders_of_runs(plan: Plan, tmp_path: Path) -> None:
    for name in ("b", "a"):
        record(plan, tmp_path / "study" / name)
    (tmp_path / "study" / "tensorboard").mkdir()
    assert run_folders(tmp_path / "study") == [tmp_path / "study" / "a", tmp_path / "study" / "b"]
    assert run_folders(tmp_path / "study" / "a") == [tmp_path / "study" / "a"]
    for nothing in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(OutputError, match=r"holds no results: name the folder of a run"):
            run_folders(nothing)


def test_what_cannot_be_told_of_a_folder(plan: Plan, tmp_path: Path) -> None:
    folder = record(plan, tmp_path / "run").folder
    ill = Diary("note")
    with pytest.raises(OutputError, match=r"tracker tests.* cannot write run: ValueError: ill in note"):
        track(folder, ill)
    assert ill.summaries == [None]

    class Missing(Diary):
        def open(self, run: TrackedRun) -> Diary:
            raise UserError("pip install it")

    with pytest.raises(UserError, match="pip install it"):
        track(folder, Missing())
    (folder / "rounds.parquet").write_bytes(b"damaged")
    with pytest.raises(OutputError, match="run cannot be read"):
        track(folder, Diary())
