"""Figures as JSON, with no more points and digits than a reader can see.

Numbers are rounded to a few digits, and NaN is null. Spans of a Gantt chart are whole numbers of a small step
of time; each start is relative to the one before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from fedsim.figures.chart_types import (
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
"""Least steps of the shortest round of a Gantt chart."""

_MAX_STEPS = 2**31 - 1

Json = dict[str, Any]


def section_json(section: Section) -> Json:
    """Return a section with its figures."""
    figures = [figure_json(figure) for figure in section.figures]
    return {"name": section.name, "title": section.title, "figures": figures}


def figure_json(figure: Figure) -> Json:
    """Return a figure; ``kind`` names its chart."""
    kind, describe = _KINDS[type(figure.chart)]
    return {
        "name": figure.name,
        "title": figure.title,
        "text": figure.text,
        "notes": list(figure.notes),
        "chart": {"kind": kind, **describe(figure.chart)},
    }


def look(number: int, label: str) -> Json:
    """Return the number of dashes or shape, and the colour, of a line or group of a chart."""
    return {"number": number, "colour": colour_number(number, label)}


def rounded(values: Array | Sequence[float], digits: int = DIGITS) -> list[float | int | None]:
    """Return numbers with so many significant digits, whole ones as integers; None if not finite."""
    numbers: list[float | int | None] = []
    for value in np.asarray(values, float).ravel().tolist():
        if not math.isfinite(value):
            numbers.append(None)
            continue
        short = float(f"{value:.{digits}g}")
        numbers.append(int(short) if short.is_integer() else short)
    return numbers


def _digits(*arrays: Array) -> int:
    """Return the digits that distinguish values close to each other and far from zero."""
    values = np.concatenate([np.asarray(array, float).ravel() for array in arrays] or [np.zeros(0)])
    values = values[np.isfinite(values)]
    spread = np.ptp(values) if len(values) else 0.0
    if not spread:
        return DIGITS + 2
    return min(15, DIGITS + max(0, math.ceil(math.log10(np.abs(values).max() / spread))))


def _lines(chart: LineChart) -> Json:
    # One digit more across, so that equal times of two lines stay equal.
    across, up = _digits(*(line.x for line in chart.lines)) + 1, _digits(*(line.y for line in chart.lines))
    lines = []
    for number, line in enumerate(map(thinned, chart.lines)):
        entry: Json = {"label": line.label, **look(number, line.label)}
        entry |= {"x": rounded(line.x, across), "y": rounded(line.y, up)}
        if line.low is not None and line.high is not None:
            entry |= {"low": rounded(line.low, up), "high": rounded(line.high, up)}
        if line.legend:
            entry["legend"] = line.legend
        lines.append(entry)
    return {
        "x": asdict(chart.x),
        "y": asdict(chart.y),
        "lines": lines,
        "targets": [asdict(target) for target in chart.targets],
        "stepped": chart.is_stepped,
    }


def _points(chart: PointChart) -> Json:
    across, up = _digits(*(group.x for group in chart.groups)), _digits(*(group.y for group in chart.groups))
    return {
        "x": asdict(chart.x),
        "y": asdict(chart.y),
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
        {"label": part.label, **look(number, part.label), "values": rounded(part.values)}
        for number, part in enumerate(chart.parts)
    ]
    return {"bars": list(chart.bars), "parts": parts, "axis": asdict(chart.axis)}


def _heat(chart: HeatChart) -> Json:
    return {
        "rowAxis": chart.row_axis,
        "columnAxis": chart.column_axis,
        "rows": list(chart.rows),
        "columns": list(chart.columns),
        "values": [rounded(row) for row in np.asarray(chart.values, float)],
        "axis": asdict(chart.axis),
    }


def _gantt(chart: GanttChart) -> Json:
    step_s = _step_s(chart)

    def steps(instants_s: Array) -> Array:
        return np.rint(np.asarray(instants_s, float) / step_s).astype(int)

    began, ended = steps(chart.began_at_s), steps(chart.ended_at_s)
    return {
        "rows": list(chart.rows),
        "phases": list(chart.phases),
        "colours": [colour_number(number, phase) for number, phase in enumerate(chart.phases)],
        "stepS": step_s,
        "row": chart.row.tolist(),
        "phase": chart.phase.tolist(),
        "round": chart.round.tolist(),
        "later": np.diff(began, prepend=0).tolist(),
        "lasted": (ended - began).tolist(),
        "rounds": chart.round_numbers.tolist(),
        "roundBegan": steps(chart.round_began_at_s).tolist(),
        "roundEnded": steps(chart.round_ended_at_s).tolist(),
    }


def _step_s(chart: GanttChart) -> float:
    """Return a power of ten, s, that divides the shortest round finely; the whole fits into 32 bits."""
    lengths_s = chart.round_ended_at_s - chart.round_began_at_s
    lengths_s = lengths_s[lengths_s > 0]
    last_s = max([1e-6, *chart.ended_at_s.tolist(), *chart.round_ended_at_s.tolist()])
    finest_s = min(lengths_s, default=last_s) / _STEPS_PER_ROUND
    power = math.floor(math.log10(max(finest_s, 1e-9)))
    return float(f"1e{max(power, math.ceil(math.log10(last_s / _MAX_STEPS)))}")


_KINDS: dict[type[Chart], tuple[str, Callable[[Any], Json]]] = {
    LineChart: ("line", _lines),
    PointChart: ("points", _points),
    BarChart: ("bars", _bars),
    HeatChart: ("heat", _heat),
    GanttChart: ("gantt", _gantt),
}
