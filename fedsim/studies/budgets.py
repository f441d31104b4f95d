"""Accuracy at equal time and at equal bytes: what each run has shown within a budget.

Within a budget a run has the accuracy of its last evaluation that is not beyond it, also where the run has
ended before. A study states budgets (``at``). Where it states none of time, the budget is the earliest end
of a run, which all runs have reached; where none of bytes, the least that a run has sent at its end, of those
that send anything.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from fedsim.params import Array
from fedsim.report.cost_breakdown import Columns
from fedsim.runtime.budget import MEASURES, Measure
from fedsim.studies.curves import Curves
from fedsim.studies.plan import Setting
from fedsim.studies.study_file import AtConfig

BUDGETS = {"time_s": ("simulated_s",), "bytes": ("bytes_up", "bytes_down")}
"""Bounded quantities, and the columns of a curve that they are sums of."""


@dataclass(frozen=True, slots=True)
class Budget:
    """A bound on time or on bytes."""

    bounds: str
    amount: float
    is_stated: bool

    @property
    def accuracy_column(self) -> str:
        """The name of the accuracy within it: ``accuracy_at_3600_s``, ``accuracy_at_equal_time``."""
        if not self.is_stated:
            return f"accuracy_at_equal_{self.bounds.removesuffix('_s')}"
        amount = int(self.amount) if self.amount.is_integer() else self.amount
        return f"accuracy_at_{amount}_{self.bounds.removeprefix('time_')}"


def budgets(curves: Mapping[Setting, Mapping[int, Columns]], at: AtConfig) -> list[Budget]:
    """Return the budgets within which the runs of a study are compared, those of time first."""
    bounded = []
    for bounds, stated in {"time_s": at.simulated, "bytes": at.bytes}.items():
        ends = [
            float(spent[-1])
            for by_seed in curves.values()
            for curve in by_seed.values()
            if len(spent := cost(curve, bounds)) and spent[-1] > 0
        ]
        bounded += [Budget(bounds, amount, True) for amount in stated] or [
            Budget(bounds, min(ends, default=math.nan), False)
        ]
    return bounded


def cost(curve: Columns, bounds: str) -> Array:
    """Return how much of a bounded quantity a run has spent by each evaluation."""
    spent: Array = np.sum([curve[name] for name in BUDGETS[bounds]], axis=0, dtype=float)
    return spent


def accuracy_within(curve: Columns, budget: Budget, of: Measure) -> float:
    """Return the accuracy of a run within a budget; NaN where nothing was measured within it."""
    accuracy = curve[MEASURES[of].column]
    within = np.flatnonzero(np.isfinite(accuracy) & (cost(curve, budget.bounds) <= budget.amount))
    return float(accuracy[within[-1]]) if len(within) else math.nan


def ended_before(curve: Columns, budget: Budget) -> bool:
    """Whether a run ended before it had spent a budget."""
    spent = cost(curve, budget.bounds)
    return bool(len(spent) and spent[-1] < budget.amount)


@dataclass(frozen=True, slots=True)
class FrontPoint:
    """A point of a Pareto front: no other setting has this accuracy for less."""

    cost: float
    accuracy: float
    setting: Setting


def front(curves: Mapping[Setting, Curves], budget: str, of: Measure) -> list[FrontPoint]:
    """Return the Pareto front by ascending cost; of equal settings the first."""
    points = [
        FrontPoint(float(spent), float(accuracy), setting)
        for setting, its_curves in curves.items()
        for spent, accuracy in zip(*mean_curve(its_curves, budget, of), strict=True)
    ]
    best, best_points = -np.inf, list[FrontPoint]()
    for point in sorted(points, key=lambda point: (point.cost, -point.accuracy)):
        if point.accuracy > best:
            best = point.accuracy
            best_points.append(point)
    return best_points


def mean_curve(curves: Curves, budget: str, of: Measure) -> tuple[Array, Array]:
    """Return the budgets at which the accuracy of a setting changes, ascending, and the accuracies."""
    steps = []
    for curve in curves.values():
        measured = np.isfinite(curve[MEASURES[of].column])
        steps.append((cost(curve, budget)[measured], curve[MEASURES[of].column][measured]))
    if not steps or not all(len(costs) for costs, _ in steps):
        return np.empty(0), np.empty(0)
    budgets = np.unique(np.concatenate([costs for costs, _ in steps]))
    budgets = budgets[budgets >= max(costs[0] for costs, _ in steps)]
    within = [values[np.searchsorted(costs, budgets, side="right") - 1] for costs, values in steps]
    return budgets, np.mean(within, axis=0)


def stretches(points: Sequence[FrontPoint]) -> list[list[FrontPoint]]:
    """Split a front into pieces of one setting each."""
    return [list(piece) for _, piece in groupby(points, key=lambda point: point.setting)]
