"""Showing results in a tracker, from Python."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedsim.plugins import Plugin
from fedsim.report import tracking
from fedsim.scenario.load import load_tracker


def track(
    folder: str | Path,
    to: str | type[Plugin[Any]],
    *,
    out: str | Path | None = None,
    params: Mapping[str, Any] | None = None,
) -> list[str]:
    """Show a run, or all runs of a comparison or a study, in a tracker, and return their names there.

    The trackers are ``tensorboard``, ``mlflow`` and ``wandb``, each by an extra of that name. To show a run
    while it goes on, name them in its scenario: ``overrides={"run.trackers": ["tensorboard"]}``.

    Args:
        folder: The folder of the results.
        to: The tracker, or a class that implements one.
        out: Folder to write into; if left out, one called like the tracker, beside the run's.
        params: What else the tracker takes.

    Raises:
        ScenarioError: There is no such tracker, or a parameter is wrong.
        OutputError: The folder holds no results, or the tracker cannot write.
        UserError: The tracker's package is not installed.
    """
    tracker = load_tracker(to, params or {}, folder=out)
    return [tracking.track(run, tracker).name for run in tracking.run_folders(Path(folder))]
