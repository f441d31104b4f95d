"""Accuracy against simulated time and bytes of what is compared: a line for each variant, a band over seeds.

The curves of several seeds have their points at different times. Their mean, least and largest value are
taken at every point of any of them: between two evaluations a run's value is on the straight line, and after
its end it keeps its last one. Before the first evaluation of the last of the seeds there is no mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from fedsim.figures.chart_types import Figure, Line, Target
from fedsim.figures.round_curves import BYTES, TIME, quality_figure
from fedsim.figures.ticks import tick_label
from fedsim.params import Array
from fedsim.runtime.budget import MEASURES, Measure
from fedsim.studies.budgets import cost
from fedsim.studies.curves import Curves
from fedsim.studies.study_file import StudyConfig

LOSSES: Mapping[Measure, str] = {"personal_mean": "loss_personal_mean", "global": "loss_global"}
"""What is shown where no accuracy was measured."""

MAX_RATIO = 5.0
"""Costs of which the largest is so many times the least are shown on a logarithmic axis."""

AXES = {"time_s": TIME, "bytes": BYTES}


def study_curve_figures(curves: Mapping[str, Curves], config: StudyConfig) -> list[Figure]:
    """Return accuracy, or else loss, of each variant against time and against bytes."""
    of = config.of
    what, column = "accuracy", MEASURES[of].column
    if not _is_measured(curves, column) and of in LOSSES:
        what, column = "loss", LOSSES[of]
    if not _is_measured(curves, column):
        return []
    marked = [Target(value, f"target {tick_label(value, 'share')}") for value in config.targets]
    return [
        figure
        for bounds in AXES
        if (figure := _figure(curves, what, column, bounds, marked, MEASURES[of].words)) is not None
    ]


def mean_line(label: str, points: Sequence[tuple[Array, Array]]) -> Line | None:
    """Return the mean of several curves (x ascending, y) with a band from the least to the largest."""
    if not points:
        return None
    x = np.unique(np.concatenate([own for own, _ in points]))
    x = x[x >= max(own[0] for own, _ in points)]
    values = np.array([np.interp(x, *curve) for curve in points])
    if len(points) == 1:
        return Line(label, x, values[0])
    return Line(label, x, values.mean(axis=0), values.min(axis=0), values.max(axis=0))


def _figure(
    curves: Mapping[str, Curves],
    what: str,
    column: str,
    bounds: str,
    targets: Sequence[Target],
    of: str,
) -> Figure | None:
    axis, lines, without = AXES[bounds], [], []
    for label, by_seed in curves.items():
        points = [_points(cost(curve, bounds), curve[column]) for curve in by_seed.values()]
        line = mean_line(label, [(x, y) for x, y in points if len(x) and x[-1] > 0])
        lines.append(line or Line(label, np.empty(0), np.empty(0)))
        if line is None and any(len(x) for x, _ in points):
            without.append(label)
    ends = [line.x[-1] for line in lines if len(line.x)]
    if not ends:
        return None
    if max(ends) >= MAX_RATIO * min(ends):
        axis, lines = replace(axis, scale="log"), [_after(line, 0.0) for line in lines]
    notes = []
    if any(line.low is not None for line in lines):
        notes.append("Lines are means over seeds; bands are from the least to the largest of them.")
        notes.append("After its end a run counts with its last value.")
    if without:
        why = "no time passes" if bounds == "time_s" else "nothing is sent"
        notes.append(f"Without a line, since {why}: {', '.join(without)}.")
    return replace(quality_figure(what, axis, lines, targets, of), notes=notes)


def _points(x: Array, y: Array) -> tuple[Array, Array]:
    there = np.isfinite(y)
    return x[there], y[there]


def _after(line: Line, least: float) -> Line:
    there = line.x > least
    low, high = (None if end is None else end[there] for end in (line.low, line.high))
    return Line(line.label, line.x[there], line.y[there], low, high)


def _is_measured(curves: Mapping[str, Curves], column: str) -> bool:
    return any(np.isfinite(curve[column]).any() for by_seed in curves.values() for curve in by_seed.values())
