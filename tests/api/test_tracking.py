"""Trackers from Python."""

import logging
from pathlib import Path
from typing import Any

import pytest

import fedsim
from fedsim.trackers import tensorboard
from fedsim.trackers.base import Follower, TrackedRun


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[TrackedRun]:
    """The runs that the tracker ``tensorboard`` is to follow, which it cannot."""
    found: list[TrackedRun] = []

    def fail(self: Any, run: TrackedRun) -> Follower:
        found.append(run)
        raise OSError("no space left")

    monkeypatch.setattr(tensorboard.PLUGIN, "open", fail)
    return found


def test_a_run_without_a_place_is_tracked_where_it_would_go(
    tiny: dict[str, Any], opened: list[TrackedRun], caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"run.trackers": ["tensorboard"]}
    with caplog.at_level(logging.WARNING):
        fedsim.run(tiny, overrides=settings)
    (message,) = (record.message for record in caplog.records)
    said = "fedavg-seed0: tracker tensorboard failed, and the run goes on: OSError: no space left"
    assert message == said
    fedsim.compare(tiny, ["fedavg", "local"], overrides=settings)
    assert {run.parent for run in opened} == {Path("runs/tiny").resolve()}
    assert [run.name for run in opened] == ["fedavg-seed0", "fedavg-seed0", "local-seed0"]


def test_a_run_with_a_place_is_tracked_beside_it(
    tiny: dict[str, Any], opened: list[TrackedRun], tmp_path: Path
) -> None:
    fedsim.run(tiny, overrides={"run.trackers": ["tensorboard"]}, out=tmp_path / "mine" / "first")
    assert [(run.name, run.parent) for run in opened] == [("first", tmp_path / "mine")]


@pytest.mark.filterwarnings("ignore")  # of TensorBoard's own imports
def test_results_that_are_there(tiny: dict[str, Any], tmp_path: Path) -> None:
    module = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    compared = fedsim.compare(tiny, ["fedavg", "local"], out=tmp_path / "runs")
    names = fedsim.track(compared.folder, "tensorboard", out=tmp_path / "logs")
    assert names == ["fedavg-seed0", "local-seed0"]
    for result in compared:
        events = module.EventAccumulator(str(tmp_path / "logs" / "by_round" / result.folder.name))
        events.Reload()
        table = result.rounds.to_pydict()
        for tag, column in (("accuracy/mean", "accuracy_mean"), ("bytes/up", "bytes_up")):
            scalars = events.Scalars(tag)
            measured = [
                (number, end, pytest.approx(value))
                for number, end, value in zip(table["round"], table["ended_at_s"], table[column], strict=True)
                if value is not None
            ]
            assert [(one.step, one.wall_time, one.value) for one in scalars] == measured
