"""Answers from a folder alone, of a study or of a comparison."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from fedsim.errors import OutputError
from fedsim.report.places import COMPARISON
from fedsim.report.read_whole import read_whole
from fedsim.scenario import load_scenario
from fedsim.studies.answer_files import Answers, read_answers
from fedsim.studies.perform import STUDY
from fedsim.studies.plan import comparison_plan, load_study
from fedsim.studies.study_columns import ANSWERS


def read_folder(folder: Path) -> Answers:
    """Return the answers of the runs that are in the folder of a study or a comparison."""
    if (folder / STUDY).is_file():
        return read_answers(load_study(folder / STUDY), folder)
    if not (folder / COMPARISON).is_file():
        raise OutputError(
            f"{folder} holds neither a study, which has a file {STUDY}, nor a comparison, which has a file "
            f"{COMPARISON}"
        )
    runs = read_whole(folder / COMPARISON, lambda file: json.loads(file.read_text("utf-8"))["runs"])
    scenarios = [load_scenario(folder / run["folder"] / "scenario.toml") for run in runs]
    return read_answers(comparison_plan(scenarios, _targets(folder)), folder)


def _targets(folder: Path) -> list[float]:
    """Return the accuracies that a comparison asks for; none where `fedsim.compare` has left no answers."""
    file = folder / ANSWERS.file
    if not file.is_file():
        return []

    def targets(file: Path) -> list[float]:
        with file.open(encoding="utf-8", newline="") as lines:
            return list(dict.fromkeys(float(row["target"]) for row in csv.DictReader(lines) if row["target"]))

    return read_whole(file, targets)
