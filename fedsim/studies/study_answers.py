"""What a study answers: what each variant costs until it reaches a target, and how good it gets.

Everything is computed from the curves of its runs (:mod:`fedsim.studies.curves`). A target is reached at the
first evaluation that shows at least its accuracy. Accuracies at equal time and bytes are those of
:mod:`fedsim.studies.budgets`. Costs to a target are means over the seeds that have
reached it, and how many have is always said. A difference to the baseline is the mean over seeds of the
variant's value minus the baseline's with the same seed, where both have one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsim.report.cost_breakdown import Columns
from fedsim.runtime.budget import MEASURES, Measure
from fedsim.studies.budgets import Budget, accuracy_within, ended_before
from fedsim.studies.curves import JAIN, STALENESS, Curves
from fedsim.studies.intervals import Interval, interval
from fedsim.studies.plan import Setting, StudyPlan
from fedsim.studies.study_file import StudyConfig

COSTS: Mapping[str, tuple[str, ...]] = {
    "time_to_target_s": ("simulated_s",),
    "bytes_to_target": ("bytes_up", "bytes_down"),
    "bytes_up_to_target": ("bytes_up",),
    "bytes_down_to_target": ("bytes_down",),
    "bytes_plain_to_target": ("bytes_plain_up", "bytes_plain_down"),
    "parameters_up_to_target": ("parameters_up",),
    "parameters_down_to_target": ("parameters_down",),
    "rounds_to_target": ("round",),
    "joules_to_target": ("joules",),
    "carbon_to_target_g": ("carbon_g",),
}
"""What it costs to reach a target, and the columns of a curve that it is the sum of."""

LAST: Mapping[str, str] = {
    "final_accuracy_std": "accuracy_std",
    "final_accuracy_worst_decile": "accuracy_worst_decile",
    "final_accuracy_jain": JAIN,
    "simulated_s": "simulated_s",
    "bytes_up": "bytes_up",
    "bytes_down": "bytes_down",
    "bytes_plain_up": "bytes_plain_up",
    "bytes_plain_down": "bytes_plain_down",
    "wasted_s": "wasted_s",
    "wasted_bytes": "wasted_bytes",
    "joules": "joules",
    "carbon_g": "carbon_g",
    "staleness_mean": STALENESS,
}
"""What is known at the last evaluation, and the columns of a curve that it is."""

SHARES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "wasted_s_share": ("wasted_s", ("work_s",)),
    "wasted_bytes_share": ("wasted_bytes", ("bytes_up", "bytes_down")),
}
"""Shares at the last evaluation: the column of a curve, and those whose sum is the whole."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What is known of a setting and a target; ``target`` is None where the study has none.

    ``seeds`` counts the runs that have ended, ``reached`` those that reached the target, and
    ``ended_before`` those that ended within each budget, by its column. ``figures`` has each quantity over
    seeds, ``differences`` the same minus the baseline's, seed by seed. Both are None where no run has it.
    """

    setting: Setting
    target: float | None
    seeds: int
    reached: int
    ended_before: Mapping[str, int]
    figures: Mapping[str, Interval | None]
    differences: Mapping[str, Interval | None]


def answers(
    curves: Mapping[Setting, Curves], config: StudyConfig, budgets: Sequence[Budget] = ()
) -> list[Answer]:
    """Return an answer for each setting and target, or for each setting if there are no targets."""
    names = [*COSTS, "best_accuracy", "final_accuracy", *LAST, *SHARES]
    names += [budget.accuracy_column for budget in budgets]
    baselines = {setting.point: setting for setting in curves if setting.variant == config.baseline}
    rows = {
        (setting, target): {
            seed: _quantities(curve, target, config.of, budgets) for seed, curve in own.items()
        }
        for setting, own in curves.items()
        for target in config.targets or (None,)
    }
    result = []
    for (setting, target), own in rows.items():
        baseline = baselines.get(setting.point, setting)
        others = {} if baseline == setting else rows[baseline, target]
        ended = {
            budget.accuracy_column: sum(ended_before(curve, budget) for curve in curves[setting].values())
            for budget in budgets
        }
        figures = {name: _over_seeds([row[name] for row in own.values()], config) for name in names}
        differences = {
            name: _over_seeds(
                [own[seed][name] - others[seed][name] for seed in own if seed in others], config
            )
            for name in (names if baseline != setting else ())
        }
        reached = sum(bool(np.isfinite(row["time_to_target_s"])) for row in own.values())
        result.append(Answer(setting, target, len(own), reached, ended, figures, differences))
    return result


def _over_seeds(values: Sequence[float], config: StudyConfig) -> Interval | None:
    """Return the mean of the values that are finite, with its interval."""
    return interval([value for value in values if np.isfinite(value)], config.interval)


def reached_at(curve: Columns, target: float, of: Measure) -> int | None:
    """Return the number of the first evaluation that shows at least an accuracy; None if there is none."""
    reached = np.flatnonzero(curve[MEASURES[of].column] >= target)  # NaN is below everything
    return int(reached[0]) if len(reached) else None


def _quantities(
    curve: Columns, target: float | None, of: Measure, budgets: Sequence[Budget]
) -> dict[str, float]:
    """Return each quantity of a run; NaN where it has none."""
    accuracy = curve[MEASURES[of].column]
    at = None if target is None else reached_at(curve, target, of)
    end = {name: float(values[-1]) if len(values) else np.nan for name, values in curve.items()}
    values: dict[str, float] = {name: end[column] for name, column in LAST.items()}
    for name, columns in COSTS.items():
        values[name] = np.nan if at is None else float(sum(curve[column][at] for column in columns))
    values["best_accuracy"] = float(np.nanmax(accuracy)) if np.isfinite(accuracy).any() else np.nan
    values["final_accuracy"] = end[MEASURES[of].column]
    for name, (part, whole) in SHARES.items():
        total = sum(end[column] for column in whole)
        values[name] = end[part] / total if total else np.nan
    for budget in budgets:
        values[budget.accuracy_column] = accuracy_within(curve, budget, of)
    return values


def answer_row(plan: StudyPlan, compared: Sequence[Budget], answer: Answer) -> dict[str, Any]:
    """Return an answer as a row of ``answers.csv``."""
    row: dict[str, Any] = {
        **plan.row_of(answer.setting),
        "target": answer.target,
        "of": plan.config.of,
        "interval": plan.config.interval,
        "seeds": answer.seeds,
        "reached": None if answer.target is None else answer.reached,
    }
    for name, value in answer.figures.items():
        row |= _interval(name, value)
        if plan.config.baseline is not None:
            difference = answer.differences.get(name)
            row |= _interval(f"{name}_minus_baseline", difference)
            row[f"{name}_pairs"] = None if difference is None else difference.count
    for budget in compared:
        accuracy = answer.figures[budget.accuracy_column]
        row[f"{budget.accuracy_column}_seeds"] = 0 if accuracy is None else accuracy.count
        row[f"{budget.accuracy_column}_ended_before"] = answer.ended_before[budget.accuracy_column]
        if not budget.is_stated:
            row[f"equal_{budget.bounds}"] = budget.amount if math.isfinite(budget.amount) else None
    return row


def _interval(name: str, value: Interval | None) -> dict[str, float | None]:
    if value is None:
        return {name: None, f"{name}_low": None, f"{name}_high": None}
    return {name: value.mean, f"{name}_low": value.low, f"{name}_high": value.high}
