"""Which setting is the most accurate within a budget: the Pareto front of accuracy against time and bytes.

With a budget a run has the accuracy of its last evaluation within it. The accuracy of a setting is the mean
over its seeds, from the budget on with which each of them has been evaluated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from fedsim.params import Array
from fedsim.runtime.budget import MEASURES, Measure
from fedsim.studies.answers import Curves
from fedsim.studies.budgets import cost
from fedsim.studies.plan import Setting


@dataclass(frozen=True, slots=True)
class FrontPoint:
    """A point that no other setting beats: none has this accuracy for less."""

    cost: float
    accuracy: float
    setting: Setting


def front(curves: Mapping[Setting, Curves], budget: str, of: Measure) -> list[FrontPoint]:
    """Return the Pareto front, from the least cost on; of equals the setting that comes first."""
    points = [
        FrontPoint(float(spent), float(accuracy), setting)
        for setting, its_curves in curves.items()
        for spent, accuracy in zip(*mean_curve(its_curves, budget, of), strict=True)
    ]
    best, found = -np.inf, list[FrontPoint]()
    for point in sorted(points, key=lambda one: (one.cost, -one.accuracy)):
        if point.accuracy > best:
            best = point.accuracy
            found.append(point)
    return found


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
    """Return a front in pieces, in each of which one setting is the most accurate."""
    return [list(piece) for _, piece in groupby(points, key=lambda point: point.setting)]
