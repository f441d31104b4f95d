"""What a study answers: what each variant costs until it reaches a target, and how good it gets.

Everything is computed from the curves of its runs (:mod:`fedsim.studies.curves`). A target is reached at the
first evaluation that shows at least its accuracy. Accuracies at equal time and bytes are those of
:mod:`fedsim.studies.budgets`. Costs to a target are means over the seeds that have
reached it, and how many have is always said. A difference to the baseline is the mean over seeds of the
variant's value minus the baseline's with the same seed, where both have one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from fedsim.report.cost_breakdown import Columns
from fedsim.runtime.budget import MEASURES, Measure
from fedsim.studies.budgets import Budget, accuracy_within, ended_before
from fedsim.studies.curves import JAIN, STALENESS
from fedsim.studies.intervals import Interval, Method, interval
from fedsim.studies.plan import Setting

Curves: TypeAlias = Mapping[int, Columns]
"""The curves of a setting's runs that have ended, by seed."""

COSTS: Mapping[str, tuple[str, ...]] = {
    "time_to_target_s": ("simulated_s",),
    "bytes_to_target": ("bytes_up", "bytes_down"),
    "bytes_up_to_target": ("bytes_up",),
    "bytes_down_to_target": ("bytes_down",),
    "parameters_up_to_target": ("parameters_up",),
    "parameters_down_to_target": ("parameters_down",),
    "rounds_to_target": ("round",),
}
"""What it costs to reach a target, and the columns of a curve that it is the sum of."""

LAST: Mapping[str, str] = {
    "final_accuracy_std": "accuracy_std",
    "final_accuracy_worst_decile": "accuracy_worst_decile",
    "final_accuracy_jain": JAIN,
    "simulated_s": "simulated_s",
    "bytes_up": "bytes_up",
    "bytes_down": "bytes_down",
    "wasted_s": "wasted_s",
    "wasted_bytes": "wasted_bytes",
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
    """What is known of a setting, and of a target."""

    setting: Setting
    target: float | None
    seeds: int
    reached: int
    ended_before: Mapping[str, int]
    figures: Mapping[str, Interval | None]
    differences: Mapping[str, Interval | None]


def answers(
    curves: Mapping[Setting, Curves],
    targets: Sequence[float],
    of: Measure,
    baseline: str | None,
    *,
    budgets: Sequence[Budget] = (),
    method: Method = "t",
) -> list[Answer]:
    """Return an answer for each setting and target, or for each setting if there are no targets."""
    baselines = {setting.point: setting for setting in curves if setting.variant == baseline}
    values = {
        (setting, target): _by_seed(its_curves, target, of, budgets)
        for setting, its_curves in curves.items()
        for target in targets or (None,)
    }
    found = []
    for (setting, target), own in values.items():
        base = baselines.get(setting.point, setting)
        others = {} if base == setting else values[base, target]
        found.append(
            Answer(
                setting,
                target,
                len(curves[setting]),
                len(own["time_to_target_s"]),
                {
                    one.column: sum(ended_before(curve, one) for curve in curves[setting].values())
                    for one in budgets
                },
                {name: interval(list(by_seed.values()), method) for name, by_seed in own.items()},
                {name: _paired(own[name], by_seed, method) for name, by_seed in others.items()},
            )
        )
    return found


def reached_at(curve: Columns, target: float, of: Measure) -> int | None:
    """Return the number of the first evaluation that shows at least an accuracy; None if there is none."""
    found = np.flatnonzero(curve[MEASURES[of].column] >= target)  # NaN is below everything
    return int(found[0]) if len(found) else None


def _by_seed(
    curves: Curves, target: float | None, of: Measure, budgets: Sequence[Budget]
) -> dict[str, dict[int, float]]:
    """Return the value of each quantity by seed; seeds that have none are left out."""

    def cost(columns: Sequence[str]) -> Callable[[Columns], float]:
        def spent(curve: Columns) -> float:
            at = None if target is None else reached_at(curve, target, of)
            return np.nan if at is None else float(sum(curve[name][at] for name in columns))

        return spent

    def last(column: str) -> Callable[[Columns], float]:
        return lambda curve: float(curve[column][-1]) if len(curve[column]) else np.nan

    def share(part: str, whole: Sequence[str]) -> Callable[[Columns], float]:
        def wasted(curve: Columns) -> float:
            total = sum(last(name)(curve) for name in whole)
            return last(part)(curve) / total if total else np.nan

        return wasted

    def within(budget: Budget) -> Callable[[Columns], float]:
        return lambda curve: accuracy_within(curve, budget, of)

    def best(curve: Columns) -> float:
        accuracy = curve[MEASURES[of].column]
        return float(np.nanmax(accuracy)) if np.isfinite(accuracy).any() else np.nan

    quantities: dict[str, Callable[[Columns], float]] = {
        **{name: cost(columns) for name, columns in COSTS.items()},
        "best_accuracy": best,
        "final_accuracy": last(MEASURES[of].column),
        **{name: last(column) for name, column in LAST.items()},
        **{name: share(part, whole) for name, (part, whole) in SHARES.items()},
        **{budget.column: within(budget) for budget in budgets},
    }
    return {
        name: {seed: value for seed, curve in curves.items() if np.isfinite(value := of_curve(curve))}
        for name, of_curve in quantities.items()
    }


def _paired(own: Mapping[int, float], others: Mapping[int, float], method: Method) -> Interval | None:
    return interval([own[seed] - others[seed] for seed in own if seed in others], method)
