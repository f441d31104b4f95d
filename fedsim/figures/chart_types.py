"""Figures: data with words, apart from how they are drawn.

A browser draws them (:mod:`fedsim.page`), and so does matplotlib. Both know the kinds of charts below and
nothing of runs; what makes figures of a run knows nothing of drawing.

Values are in the unit of their axis: seconds, bytes, shares between 0 and 1. Whoever draws chooses how to
show them, such as ``1 min 16 s`` or ``50.4 MB``. A value that is not there is NaN, and leaves a gap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from fedsim.params import Array

Unit: TypeAlias = Literal["s", "B", "B/s", "J", "share", "1"]
"""What the numbers of an axis are: seconds, bytes, bytes a second, shares of 1, or plain numbers."""

Scale: TypeAlias = Literal["linear", "log"]


@dataclass(frozen=True, slots=True)
class Axis:
    """What a direction of a chart measures."""

    label: str
    unit: Unit = "1"
    scale: Scale = "linear"


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """A line of a chart, perhaps with a band around it.

    Attributes:
        x: Where its points are, ascending, ``[n]``. A line without points is neither drawn nor in the legend,
            but keeps its place in the order of colours: what it stands for has one colour in all figures.
        y: Their values, ``[n]``.
        low: Lower end of the band, ``[n]``; None without a band.
    """

    label: str
    x: Array
    y: Array
    low: Array | None = None
    high: Array | None = None
    legend: str = ""


def measured_line(label: str, x: Array, y: Array) -> Line:
    """Return a line through the points that have a value."""
    there = np.isfinite(y)
    return Line(label, x[there], y[there])


@dataclass(frozen=True, slots=True)
class Target:
    """A value on the vertical axis that is marked across the chart."""

    value: float
    label: str


@dataclass(frozen=True, slots=True)
class LineChart:
    """Lines."""

    x: Axis
    y: Axis
    lines: Sequence[Line]
    targets: Sequence[Target] = ()
    is_stepped: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """Points of one colour.

    Attributes:
        x: Where they are, ``[n]``.
    """

    label: str
    x: Array
    y: Array
    names: Sequence[str]


@dataclass(frozen=True, slots=True)
class PointChart:
    """Single points, such as one for each client."""

    x: Axis
    y: Axis
    groups: Sequence[Points]


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """What the bars of a chart have of one thing.

    Attributes:
        values: How much each bar has of it, ``[bars]``.
    """

    label: str
    values: Array


@dataclass(frozen=True, slots=True)
class BarChart:
    """Horizontal bars, each made of parts that add up."""

    bars: Sequence[str]
    parts: Sequence[Part]
    axis: Axis


@dataclass(frozen=True, slots=True, eq=False)
class HeatChart:
    """A grid of cells, darker where there is more.

    Attributes:
        values: ``[rows, columns]``.
    """

    row_axis: str
    column_axis: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: Array
    axis: Axis


@dataclass(frozen=True, slots=True, eq=False)
class GanttChart:
    """Who did what when: a row for each client, and a span for each phase of each of its dispatches.

    Attributes:
        row: Number of each span's row, ``[spans]``.
        phase: Number of its phase, ``[spans]``.
        round: The round of its dispatch, ``[spans]``.
        began_at_s: Virtual time at its start, s, ``[spans]``.
        ended_at_s: And at its end, s.
        round_began_at_s: Virtual time at the start of each round, by number, s, ``[rounds]``.
        round_ended_at_s: And at its end, s.
        round_numbers: Their numbers, ``[rounds]``.
    """

    rows: Sequence[str]
    phases: Sequence[str]
    row: Array
    phase: Array
    round: Array
    began_at_s: Array
    ended_at_s: Array
    round_numbers: Array
    round_began_at_s: Array
    round_ended_at_s: Array


Chart: TypeAlias = LineChart | PointChart | BarChart | HeatChart | GanttChart


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart with its words."""

    name: str
    title: str
    text: str
    chart: Chart
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Section:
    """Figures that belong together, under a heading."""

    name: str
    title: str
    figures: Sequence[Figure]
