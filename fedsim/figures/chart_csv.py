"""The data of a chart as CSV: a row for each value, with the units in the names of the columns."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence
from typing import Any

from fedsim.csv_rows import safe_cell
from fedsim.figures.base import Axis, BarChart, Chart, GanttChart, HeatChart, LineChart, PointChart

Row = Sequence[Any]


def chart_csv(chart: Chart) -> bytes:
    """Return the data of a chart; numbers are exact, and what is not there is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for row in _rows(chart):
        writer.writerow([_cell(value) for value in row])
    return text.getvalue().encode()


def _rows(chart: Chart) -> Iterator[Row]:
    """Yield the heading and the rows."""
    match chart:
        case LineChart():
            yield "line", _name(chart.x), *(f"{_name(chart.y)}{end}" for end in ("", ", low", ", high"))
            for line in chart.lines:
                ends = (
                    [None] * len(line.x) if end is None else end.tolist() for end in (line.low, line.high)
                )
                for values in zip(line.x.tolist(), line.y.tolist(), *ends, strict=True):
                    yield line.label, *values
            for target in chart.targets:
                yield target.label, None, target.value, None, None
        case PointChart():
            yield "group", "name", _name(chart.x), _name(chart.y)
            for group in chart.groups:
                for name, *place in zip(group.names, group.x.tolist(), group.y.tolist(), strict=True):
                    yield group.label, name, *place
        case BarChart():
            yield "bar", "part", _name(chart.axis)
            for number, bar in enumerate(chart.bars):
                for part in chart.parts:
                    yield bar, part.label, float(part.values[number])
        case HeatChart():
            yield chart.row_axis, chart.column_axis, _name(chart.axis)
            for name, values in zip(chart.rows, chart.values.tolist(), strict=True):
                for column, value in zip(chart.columns, values, strict=True):
                    yield name, column, value
        case GanttChart():
            yield "row", "round", "phase", "began at [s]", "ended at [s]"
            columns = (chart.row, chart.round, chart.phase, chart.began_at_s, chart.ended_at_s)
            for row, number, phase, began_at_s, ended_at_s in zip(
                *(column.tolist() for column in columns), strict=True
            ):
                yield chart.rows[row], number, chart.phases[phase], began_at_s, ended_at_s


def _name(axis: Axis) -> str:
    """Return the name of an axis with its unit; shares and counts have none."""
    return axis.label if axis.unit in ("1", "share") else f"{axis.label} [{axis.unit}]"


def _cell(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else safe_cell(value)
