"""Which runs of a study are not there, and of which a model is not finite at the end."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

from fedsim.report.places import holds_scenario
from fedsim.report.summary import read_summary
from fedsim.studies.plan import StudyPlan

NOT_THERE = "it is not there: it has not ended, or has failed"

NOT_FINITE = "at its end a model, or a loss, is not finite: see its log.jsonl"

NOT_CHOSEN = "it was not run, since no values of [tune] have a trial for each seed"


def unfinished(whole: StudyPlan, chosen: StudyPlan, parent: Path) -> dict[str, str]:
    """Return what is wrong in the folder of a study, by labels of runs, or by what a setting is called."""
    found = {}
    for run in (*chain(*whole.trials.values()), *chosen.runs):
        folder = parent / run.label
        if not holds_scenario(folder, run.scenario_toml):
            found[run.label] = NOT_THERE
        elif not read_summary(folder)["finite"]:
            found[run.label] = NOT_FINITE
    for setting, candidates in chosen.candidates.items():
        if not candidates:
            found[" ".join(map(str, (setting.variant, *setting.point)))] = NOT_CHOSEN
    return found
