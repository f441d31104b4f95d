"""Choosing values by validation: each setting gets, of the values that were tried, the best ones.

A trial is a run with a seed of the tuning, measured on the clients' validation samples. Its score is the mean
over clients of the accuracy at its end. A candidate's score is the mean over its trials; of equals the first
in the file is chosen. A candidate of which a trial has failed, or ended with a model or a loss that is not
finite, is not chosen.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedsim.report.places import holds_scenario
from fedsim.report.read_parquet import read_columns
from fedsim.report.summary import read_summary
from fedsim.studies.plan import Setting, StudyPlan


@dataclass(frozen=True, slots=True)
class Tuning:
    """What trials have shown."""

    scores: Mapping[tuple[Setting, int], Mapping[int, float]]
    chosen: Mapping[Setting, int]


def read_tuning(plan: StudyPlan, parent: Path) -> Tuning:
    """Return what the trials in the folder of a study have shown; without any there is nothing to choose."""
    if plan.config.tune is None:
        return Tuning({}, dict.fromkeys(plan.settings, 0))
    scores = {
        key: {
            trial.seed: score
            for trial in trials
            if holds_scenario(parent / trial.label, trial.scenario_toml)
            and (score := _score(parent / trial.label)) is not None
        }
        for key, trials in plan.trials.items()
    }
    return Tuning(scores, choose(scores, len(plan.config.tune.seeds)))


def choose(scores: Mapping[tuple[Setting, int], Mapping[int, float]], seeds: int) -> dict[Setting, int]:
    """Return the number of the best candidate of each setting, of those that have a score for all seeds."""
    best: dict[Setting, tuple[float, int]] = {}
    for (setting, number), by_seed in scores.items():
        if len(by_seed) == seeds:
            mean = statistics.fmean(by_seed.values())
            if setting not in best or mean > best[setting][0]:
                best[setting] = mean, number
    return {setting: number for setting, (_, number) in best.items()}


def _score(folder: Path) -> float | None:
    if not read_summary(folder)["finite"]:
        return None
    accuracy = read_columns(folder / "rounds.parquet", ("accuracy_mean",))["accuracy_mean"]
    measured = accuracy[np.isfinite(accuracy)]
    return float(measured[-1]) if len(measured) else None
