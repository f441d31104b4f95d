"""MLflow: a run in a local database, or on a server; steps are rounds, times simulated.

A run's experiment is called like the folder that the run's folder is in. Beside the figures of a round stand
``simulated_s`` and ``total_bytes``, and the time of each is the run's start plus simulated time, so that the
horizontal axis "Time (relative)" is simulated time. Parameters are the values of the scenario by their paths.
A run that is written again is another run of MLflow's.
"""

from __future__ import annotations

import fcntl
import logging
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import Field

from fedsim.trackers.base import Follower, Point, TrackedRun, Tracker, TrackerConfig, flat, needed

MAX_PARAMS = 100
"""Parameters that MLflow takes at once."""

MAX_CHARACTERS = 6000
"""Characters of a parameter's value that MLflow takes."""


class MlflowConfig(TrackerConfig):
    """Settings of MLflow."""

    uri: str | None = Field(None, min_length=1, examples=["'http://localhost:5000'"])
    """Tracking URI of a server; the database ``mlflow.db`` in the folder if left out."""


class Mlflow(Tracker[MlflowConfig]):
    """Writes a run of MLflow's."""

    def open(self, run: TrackedRun) -> Follower:
        """Make the run, with the scenario as its parameters and as a file."""
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # nothing here asks for a network
        with warnings.catch_warnings():  # of SQLAlchemy's, about MLflow
            warnings.simplefilter("ignore")
            mlflow = needed("mlflow", "mlflow")
            for name in ("mlflow.store.db.utils", "alembic"):
                logging.getLogger(name).setLevel(logging.WARNING)
            uri = self._uri(run)
            with _alone(None if self.config.uri else self.folder(run)):
                client = mlflow.MlflowClient(tracking_uri=uri, registry_uri=uri)
                experiment_id = self._experiment(client, run)
        return _Run(client, mlflow.entities, client.create_run(experiment_id, run_name=run.name).info, run)

    def how_to_look(self, run: TrackedRun) -> str:
        """Return the command that shows it in a browser."""
        return f"mlflow ui --backend-store-uri {self._uri(run)}"

    def _uri(self, run: TrackedRun) -> str:
        return self.config.uri or f"sqlite:///{self.folder(run) / 'mlflow.db'}"

    def _experiment(self, client: Any, run: TrackedRun) -> str:
        """Return the id of the run's experiment, which is made if it is not there."""
        if (there := client.get_experiment_by_name(run.group)) is not None:
            return str(there.experiment_id)
        files = None if self.config.uri else (self.folder(run) / "artifacts").as_uri()
        return str(client.create_experiment(run.group, artifact_location=files))


@contextmanager
def _alone(folder: Path | None) -> Iterator[None]:
    """Let one process at a time make what is in a folder: MLflow's making of its tables bears no other."""
    if folder is None:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class _Run(Follower):
    def __init__(self, client: Any, entities: Any, info: Any, run: TrackedRun) -> None:
        self._client = client
        self._entities = entities
        self._id = info.run_id
        self._began_ms = info.start_time
        params = [entities.Param(path, str(value)[:MAX_CHARACTERS]) for path, value in flat(run.settings)]
        for first in range(0, len(params), MAX_PARAMS):
            client.log_batch(self._id, params=params[first : first + MAX_PARAMS])
        client.log_text(self._id, run.scenario_toml, "scenario.toml")

    def note(self, point: Point) -> None:
        at_ms = self._began_ms + round(point.simulated_s * 1000)
        figures = point.axes | dict(point.figures)
        metrics = [self._entities.Metric(name, value, at_ms, point.round) for name, value in figures.items()]
        self._client.log_batch(self._id, metrics=metrics)

    def close(self, summary: Mapping[str, Any] | None) -> None:
        if summary is not None:
            self._client.log_dict(self._id, dict(summary), "summary.json")
        self._client.set_terminated(self._id, "FAILED" if summary is None else "FINISHED")


PLUGIN = Mlflow
