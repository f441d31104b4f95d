"""The runs that a study or a comparison holds, by what is compared."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsim.report.places import COMPARISON, holds_scenario
from fedsim.report.read_whole import read_whole
from fedsim.runtime.budget import Measure
from fedsim.studies.perform import STUDY
from fedsim.studies.plan import load_study
from fedsim.studies.study_columns import ANSWERS
from fedsim.studies.tuning import read_tuning


@dataclass(frozen=True, slots=True)
class ComparedRuns:
    """What is compared.

    Attributes:
        folders: The folders of the runs that have ended, by the name of their variant and by seed.
        targets: Accuracies to be reached.
        of: Which accuracy they are of.
    """

    folders: Mapping[str, Mapping[int, Path]]
    targets: Sequence[float]
    of: Measure


def compared_runs(folder: Path) -> ComparedRuns:
    """Return the runs in the folder of a study or of a comparison, even if it has not ended.

    Raises:
        OutputError: A file is not there, or damaged.
        ScenarioError: The folder of a study whose scenarios are not valid here.
    """
    return _of_study(folder) if (folder / STUDY).is_file() else _of_comparison(folder)


def _of_study(folder: Path) -> ComparedRuns:
    whole = load_study(folder / STUDY)
    plan = whole.chosen(read_tuning(whole, folder).chosen)
    folders: dict[str, dict[int, Path]] = {}
    for run in plan.runs:
        if holds_scenario(folder / run.label, run.scenario_toml):
            folders.setdefault(plan.name_of(run.setting), {})[run.seed] = folder / run.label
    return ComparedRuns(folders, plan.config.targets, plan.config.of)


def _of_comparison(folder: Path) -> ComparedRuns:
    runs = read_whole(folder / COMPARISON, lambda file: _folders(folder, json.loads(file.read_text("utf-8"))))
    answers = folder / ANSWERS.file
    rows = read_whole(answers, _rows) if answers.exists() else []
    targets = dict.fromkeys(float(row["target"]) for row in rows if row["target"])
    return ComparedRuns(runs, list(targets), rows[0]["of"] if rows else "personal_mean")


def _folders(folder: Path, document: Mapping[str, Any]) -> dict[str, dict[int, Path]]:
    folders: dict[str, dict[int, Path]] = {}
    for run in document["runs"]:
        folders.setdefault(run["algorithm"], {})[run["seed"]] = folder / run["folder"]
    return folders


def _rows(file: Path) -> list[dict[str, Any]]:
    return list(csv.DictReader(file.read_text("utf-8").splitlines()))
