"""Runs of MLflow in its local database, read back by its own client."""

from typing import Any

import pytest

from fedsim.trackers.base import Point, TrackedRun
from fedsim.trackers.mlflow import PLUGIN as MLFLOW
from tests.trackers.conftest import TOML, told

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def client(tracked: TrackedRun) -> Any:
    """A client of the database; the import alone takes seconds."""
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    uri = f"sqlite:///{tracked.parent / 'mlflow' / 'mlflow.db'}"
    return lambda: mlflow.MlflowClient(tracking_uri=uri, registry_uri=uri)


def test_steps_are_rounds_and_times_simulated(client: Any, tracked: TrackedRun, points: list[Point]) -> None:
    tracker = MLFLOW(MLFLOW.Config())
    told(tracker, tracked, points)
    told(tracker, tracked, points[:1], failed=True)
    there = client()
    experiment = there.get_experiment_by_name("fleet")
    runs = {one.info.status: one for one in there.search_runs([experiment.experiment_id])}
    assert sorted(runs) == ["FAILED", "FINISHED"]
    assert [one.info.run_name for one in runs.values()] == ["fedavg-seed0"] * 2
    run = runs["FINISHED"]
    assert run.data.params == {
        "run.name": "tiny",
        "run.rounds": "2",
        "fleet.0.count": "3",
        "fleet.0.device": "low",
    }

    def history(name: str) -> list[tuple[int, float, int]]:
        began_ms = run.info.start_time
        found = there.get_metric_history(run.info.run_id, name)
        return [(one.step, one.value, one.timestamp - began_ms) for one in found]

    assert history("accuracy/mean") == [(1, 0.25, 2250), (2, 0.75, 7_200_000)]
    assert history("total_bytes") == [(0, 100, 500), (1, 5e9, 2250), (2, 5e9 + 100, 7_200_000)]
    assert [value for _, value, _ in history("simulated_s")] == [0.5, 2.25, 7200]
    files = {file.path: file for file in there.list_artifacts(run.info.run_id)}
    assert files.keys() == {"scenario.toml", "summary.json"}
    (written,) = (tracked.parent / "mlflow" / "artifacts" / run.info.run_id).rglob("scenario.toml")
    assert written.read_text() == TOML


def test_many_and_long_parameters_are_taken(client: Any, tracked: TrackedRun, points: list[Point]) -> None:
    many = "\n".join(f'key{number} = "{"x" * 7000}"' for number in range(150))
    told(MLFLOW(MLFLOW.Config()), TrackedRun("run", tracked.parent, many), points)
    there = client()
    (run,) = there.search_runs([there.get_experiment_by_name("fleet").experiment_id])
    assert len(run.data.params) == 150
    assert set(map(len, run.data.params.values())) == {6000}
