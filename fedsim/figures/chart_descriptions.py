"""Numbers and lines in words, as the texts of figures have them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedsim.figures.chart_types import Axis, BarChart, LineChart, Unit
from fedsim.params import Array
from fedsim.report import number_format
from fedsim.units import format_quantity

MAX_TOLD = 6
"""Lines or bars that a text tells of."""


def amount(value: float, unit: Unit) -> str:
    """Return a value in words: ``"1 min 16 s"``, ``"50.4 MB"``, ``"97.1 %"``."""
    match unit:
        case "s":
            return number_format.duration(value)
        case "B":
            return number_format.size(value)
        case "B/s":
            return format_quantity(value, "data rate")
        case "J":
            return number_format.energy(value)
        case "share":
            return f"{number_format.percent(value)} %"
        case "1":
            show = number_format.count if value >= 100 or value.is_integer() else number_format.number
            return show(value)


def lines_text(chart: LineChart) -> str:
    """Return where each line begins and ends, and its highest value if that lies between."""
    sentences = []
    for line in chart.lines:
        there = np.flatnonzero(np.isfinite(line.y))
        if not len(there):
            continue
        first, last, top = there[0], there[-1], there[np.argmax(line.y[there])]

        def at(place: int, x: Array = line.x, y: Array = line.y) -> str:
            return f"{amount(float(y[place]), chart.y.unit)} at {_place(float(x[place]), chart.x)}"

        text = at(last) if first == last else f"from {at(first)} to {at(last)}"
        if line.y[top] > max(line.y[first], line.y[last]):
            text += f", at most {at(top)}"
        sentences.append(f"{line.label}: {text}")
    return _listed(chart.y, sentences)


def bars_text(chart: BarChart) -> str:
    """Return how long each bar is, and of what."""
    sentences = []
    for number, bar in enumerate(chart.bars):
        values = {part.label: amount(float(part.values[number]), chart.axis.unit) for part in chart.parts}
        sentences.append(f"{bar}: {', '.join(f'{value} {label}' for label, value in values.items())}")
    return _listed(chart.axis, sentences)


def _place(value: float, axis: Axis) -> str:
    text = amount(value, axis.unit)
    return f"{axis.label} {text}" if axis.unit == "1" else text


def listed(sentences: Sequence[str]) -> str:
    """Return what is told of each line or bar in one sentence, of so many at most."""
    ends = [f"and {more} more"] if (more := len(sentences) - MAX_TOLD) > 0 else []
    return f"{'; '.join([*sentences[:MAX_TOLD], *ends])}."


def _listed(axis: Axis, sentences: Sequence[str]) -> str:
    return f"{axis.label[:1].upper()}{axis.label[1:]}. {listed(sentences)}"
