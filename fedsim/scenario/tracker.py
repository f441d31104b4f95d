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
    said = plain(name, "tracker")
    document: dict[str, Any] = {"name": said, "params": {} if folder is None else {"folder": str(folder)}}
    found = [
        one if isinstance(one, Fault) else apply_override(document["params"], one)
        for one in parsed(params, said)
    ]
    faults = [fault for fault in found if fault is not None]
    try:
        choice = TrackerChoice.model_validate(document)
    except ValidationError as error:
        faults += faults_of(error, document)
    if faults:
        raise ScenarioError(faults, "tracker")
    tracker: Tracker[Any] = choice.make()
    return tracker
