"""Figures as JSON, with no more points of a line and no more digits than a reader can see.

Numbers are rounded to a few digits, and what is not there (NaN) is null. Spans of a Gantt chart are whole
numbers of a small step of time, and each begins so many steps after the one before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fedsim.errors import InvariantError
from fedsim.figures.base import (
    Axis,
    BarChart,
    Chart,
    Figure,
    GanttChart,
    HeatChart,
    LineChart,
    PointChart,
    Section,
)
from fedsim.figures.palette import colour_number
from fedsim.figures.thinning import thinned
from fedsim.params import Array

DIGITS = 4
"""Significant digits of a number whose values spread over its size."""

_STEPS_PER_ROUND = 2000
"""Into how many steps the shortest round of a Gantt chart is divided at least."""

_MOST_STEPS = 2**31 - 1

Json = dict[str, Any]


def section_json(section: Section) -> Json:
    """Return a section with its figures."""
    figures = [figure_json(figure) for figure in section.figures]
    return {"name": section.name, "title": section.title, "figures": figures}


def figure_json(figure: Figure) -> Json:
    """Return a figure; its chart says by ``kind`` which it is.

    Raises:
        InvariantError: Its chart is of a kind that is described nowhere.
    """
    for kind, (of, describe) in _KINDS.items():
        if isinstance(figure.chart, of):
            return {
                "name": figure.name,
                "title": figure.title,
                "text": figure.text,
                "notes": list(figure.notes),
                "chart": {"kind": kind, **describe(figure.chart)},
            }
    raise InvariantError(f"figure {figure.name!r} is a {type(figure.chart).__name__}, which no page can draw")


def look(number: int, label: str) -> Json:
    """Return how one of the things of a chart looks: the number of its dashes or shape, and its colour."""
    return {"number": number, "colour": colour_number(number, label)}


def rounded(values: Array | Sequence[float], digits: int = DIGITS) -> list[float | int | None]:
    """Return numbers with so many significant digits, whole ones as such; None for what is not finite."""
    found: list[float | int | None] = []
    for value in np.asarray(values, float).ravel().tolist():
        if not math.isfinite(value):
            found.append(None)
            continue
        short = float(f"{value:.{digits}g}")
        found.append(int(short) if short.is_integer() else short)
    return found


def _digits(*arrays: Array) -> int:
    """Return the digits that tell values apart which lie close to each other, far from zero."""
    values = np.concatenate([np.asarray(array, float).ravel() for array in arrays] or [np.zeros(0)])
    values = values[np.isfinite(values)]
    spread = np.ptp(values) if len(values) else 0.0
    if not spread:
        return DIGITS + 2
    return min(15, DIGITS + max(0, math.ceil(math.log10(np.abs(values).max() / spread))))


def _axis(axis: Axis) -> Json:
    return {"label": axis.label, "unit": axis.unit, "scale": axis.scale}


def _lines(chart: LineChart) -> Json:
    # One digit more across: what happens at one time in two lines should stay so.
    across, up = _digits(*(line.x for line in chart.lines)) + 1, _digits(*(line.y for line in chart.lines))
    lines = []
    for number, line in enumerate(map(thinned, chart.lines)):
        said: Json = {
            "label": line.label,
            **look(number, line.label),
            "x": rounded(line.x, across),
            "y": rounded(line.y, up),
        }
        if line.low is not None and line.high is not None:
            said |= {"low": rounded(line.low, up), "high": rounded(line.high, up)}
        if line.legend:
            said["legend"] = line.legend
        lines.append(said)
    return {
        "x": _axis(chart.x),
        "y": _axis(chart.y),
        "lines": lines,
        "targets": [{"value": target.value, "label": target.label} for target in chart.targets],
        "stepped": chart.is_stepped,
    }


def _points(chart: PointChart) -> Json:
    across, up = _digits(*(group.x for group in chart.groups)), _digits(*(group.y for group in chart.groups))
    return {
        "x": _axis(chart.x),
        "y": _axis(chart.y),
        "groups": [
            {
                "label": group.label,
                **look(number, group.label),
                "x": rounded(group.x, across),
                "y": rounded(group.y, up),
                "names": list(group.names),
            }
            for number, group in enumerate(chart.groups)
        ],
    }


def _bars(chart: BarChart) -> Json:
    parts = [
        {
            "label": part.label,
            **look(number, part.label),
            "values": rounded(part.values),
        }
        for number, part in enumerate(chart.parts)
    ]
    return {"bars": list(chart.bars), "parts": parts, "axis": _axis(chart.axis)}


def _heat(chart: HeatChart) -> Json:
    return {
        "rowAxis": chart.row_axis,
        "columnAxis": chart.column_axis,
        "rows": list(chart.rows),
        "columns": list(chart.columns),
        "values": [rounded(row) for row in np.asarray(chart.values, float)],
        "axis": _axis(chart.axis),
    }


def _gantt(chart: GanttChart) -> Json:
    began_at_s, ended_at_s = np.asarray(chart.began_at_s, float), np.asarray(chart.ended_at_s, float)
    step_s = _step_s(chart)
    began, ended = np.rint(began_at_s / step_s).astype(int), np.rint(ended_at_s / step_s).astype(int)
    return {
        "rows": list(chart.rows),
        "phases": list(chart.phases),
        "colours": [colour_number(number, phase) for number, phase in enumerate(chart.phases)],
        "stepS": step_s,
        "row": np.asarray(chart.row).tolist(),
        "phase": np.asarray(chart.phase).tolist(),
        "round": np.asarray(chart.round).tolist(),
        "later": np.diff(began, prepend=0).tolist(),
        "lasted": (ended - began).tolist(),
        "rounds": np.asarray(chart.round_numbers).tolist(),
        "roundBegan": np.rint(np.asarray(chart.round_began_at_s, float) / step_s).astype(int).tolist(),
        "roundEnded": np.rint(np.asarray(chart.round_ended_at_s, float) / step_s).astype(int).tolist(),
    }


def _step_s(chart: GanttChart) -> float:
    """Return a power of ten that divides the shortest round finely, and the whole into 32 bits."""
    lengths_s = np.asarray(chart.round_ended_at_s, float) - np.asarray(chart.round_began_at_s, float)
    lengths_s = lengths_s[lengths_s > 0]
    last_s = max([1e-6, *np.asarray(chart.ended_at_s, float), *np.asarray(chart.round_ended_at_s, float)])
    finest_s = min(lengths_s, default=last_s) / _STEPS_PER_ROUND
    power = math.floor(math.log10(max(finest_s, 1e-9)))
    return float(f"1e{max(power, math.ceil(math.log10(last_s / _MOST_STEPS)))}")


_KINDS: dict[str, tuple[type[Chart], Callable[[Any], Json]]] = {
    "line": (LineChart, _lines),
    "points": (PointChart, _points),
    "bars": (BarChart, _bars),
    "heat": (HeatChart, _heat),
    "gantt": (GanttChart, _gantt),
}
