"""Opening folders of results."""

from __future__ import annotations

import json
from pathlib import Path

from fedsim.api.results import Comparison, Result
from fedsim.api.studies import StudyResult, open_study
from fedsim.errors import OutputError
from fedsim.report.atomic_folder import MARK
from fedsim.report.places import COMPARISON, STUDY
from fedsim.report.read_whole import read_whole


def open(folder: str | Path) -> Result | Comparison | StudyResult:  # noqa: A001
    """Return what a folder holds: one run, the runs of a comparison, or a study, even if it has not ended.

    Raises:
        OutputError: None of them, or it cannot be read.
        ScenarioError: The folder of a study whose scenarios are not valid here.
    """
    place = Path(folder).resolve()
    if (place / MARK).is_file():
        return Result(place)
    if (place / STUDY).is_file():
        return open_study(place)
    if (place / COMPARISON).is_file():
        runs = read_whole(place / COMPARISON, lambda file: json.loads(file.read_text())["runs"])
        return Comparison(place, [Result(place / one["folder"]) for one in runs])
    raise OutputError(
        f"{place} holds no results: name the folder of a run, in which is {MARK}, of a comparison, in which "
        f"is {COMPARISON}, or of a study, in which is {STUDY}"
    )
