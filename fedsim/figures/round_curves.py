"""How good a run was when: accuracy against simulated time and against bytes, from its rounds.

Everything here takes columns of ``rounds``, so it also serves a run that goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedsim.figures.chart_descriptions import lines_text
from fedsim.figures.chart_types import Axis, Figure, Line, LineChart, Scale, Target, measured_line
from fedsim.params import Array
from fedsim.report.cost_breakdown import Columns
from fedsim.report.run_columns import SENT

TIME = Axis("simulated time", "s")
BYTES = Axis("bytes sent, up and down", "B")

ACCURACY = {
    "mean over clients": "accuracy_mean",
    "10 % least accurate clients": "accuracy_worst_decile",
    "global test set": "accuracy_global",
}
"""Labels of lines, and the columns that they show."""

LOSS = {"mean over clients": "loss_mean", "global test set": "loss_global"}
"""The same where there is no accuracy, as in a regression."""

NEEDED = ("ended_at_s", *SENT, *ACCURACY.values(), *LOSS.values())
"""Columns that these figures are made of."""

MAX_RATIO = 20.0
"""Values whose extremes are farther apart are shown on a logarithmic axis, if they are losses."""


def quality_figures(rounds: Columns, targets: Sequence[Target] = ()) -> list[Figure]:
    """Return accuracy, or else loss, against simulated time and bytes; nothing where neither was measured."""
    what, measured = measured_in(rounds)
    if not measured:
        return []
    across = [(TIME, rounds["ended_at_s"].astype(float))]
    if (sent := sent_by(rounds))[-1] > 0:
        across.append((BYTES, sent))
    return [
        quality_figure(what, axis, [measured_line(label, x, y) for label, y in measured.items()], targets)
        for axis, x in across
    ]


def measured_in(rounds: Columns) -> tuple[str, Mapping[str, Array]]:
    """Return ``"accuracy"``, or else ``"loss"``, and the columns that have values, by the labels of lines."""
    for what, columns in (("accuracy", ACCURACY), ("loss", LOSS)):
        lines = {label: rounds[column].astype(float) for label, column in columns.items() if column in rounds}
        if there := {label: values for label, values in lines.items() if np.isfinite(values).any()}:
            return what, there
    return "accuracy", {}


def sent_by(rounds: Columns) -> Array:
    """Return the bytes of all frames by the end of each round."""
    sent: Array = np.cumsum(sum(rounds[name] for name in SENT), dtype=float)
    return sent


def quality_axis(what: str, values: Sequence[Array], of: str = "") -> Axis:
    """Return the axis of accuracies or losses."""
    label = f"{what}, {of}" if of else what
    if what == "accuracy":
        return Axis(label, "share")
    every = np.concatenate([array[np.isfinite(array)] for array in values])
    wide = len(every) and every.min() > 0 and every.max() / every.min() > MAX_RATIO
    scale: Scale = "log" if wide else "linear"
    return Axis(label, "1", scale)


def quality_figure(
    what: str, x: Axis, lines: Sequence[Line], targets: Sequence[Target], of: str = ""
) -> Figure:
    """Return a figure of accuracy or loss against time or bytes; the last as in :func:`quality_axis`."""
    y = quality_axis(what, [line.y for line in lines], of)
    chart = LineChart(x, y, lines, targets if what == "accuracy" else ())
    by = "time" if x.unit == "s" else "bytes"
    title = f"{what.capitalize()} against {'simulated time' if by == 'time' else 'bytes sent'}"
    return Figure(f"{what}-by-{by}", title, lines_text(chart), chart)
