"""A tracker that is chosen by itself, outside a scenario, for results that are there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fedsim.errors import Fault, ScenarioError
from fedsim.scenario.load import Algorithm, Overrides, apply_override, parsed, plain
from fedsim.scenario.validation_messages import faults_of
from fedsim.trackers.base import Tracker, TrackerChoice


def load_tracker(
    name: Algorithm, params: Overrides = (), *, folder: str | Path | None = None
) -> Tracker[Any]:
    """Return a tracker."""
    written = plain(name, "tracker")
    document: dict[str, Any] = {"name": written, "params": {} if folder is None else {"folder": str(folder)}}
    results = [
        override if isinstance(override, Fault) else apply_override(document["params"], override)
        for override in parsed(params, written)
    ]
    faults = [fault for fault in results if fault is not None]
    try:
        choice = TrackerChoice.model_validate(document)
    except ValidationError as error:
        faults += faults_of(error, document)
    if faults:
        raise ScenarioError(faults, "tracker")
    tracker: Tracker[Any] = choice.make()
    return tracker
