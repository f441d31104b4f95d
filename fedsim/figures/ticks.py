"""Where an axis has its marks, and what they are called: whole minutes, megabytes, per cents."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from fedsim.figures.chart_descriptions import amount
from fedsim.figures.chart_types import Axis, Scale, Unit

MAX_TICKS = 6
"""Marks of an axis, unless told otherwise."""

_MINUTE_S, _HOUR_S, _DAY_S = 60.0, 3600.0, 86400.0
_CLOCK_S = (
    *(1.0, 2.0, 5.0, 10.0, 15.0, 30.0),
    *(_MINUTE_S * many for many in (1, 2, 5, 10, 15, 30)),
    *(_HOUR_S * many for many in (1, 2, 3, 6, 12)),
)
"""Steps between marks, from a second to a day; below and above steps are decimal."""

_ROUND_S = (1.0, 10.0, _MINUTE_S, 10 * _MINUTE_S, _HOUR_S, 10 * _HOUR_S)
"""Marks of a logarithmic axis, likewise."""


NEAR_ZERO = 0.15
"""Share of the values' range: an axis begins at zero where the least value is not farther from it."""

MAX_STRETCH = 0.5
"""Share of the values' range by which an axis is stretched for a target, so that lines keep most of it."""


def reach(least: float, most: float, axis: Axis, marked: Sequence[float] = ()) -> tuple[float, float]:
    """Return the ends of an axis that shows values from ``least`` to ``most``, with some room beyond."""
    room = (most - least) * MAX_STRETCH or math.inf
    near = [value for value in marked if least - room <= value <= most + room]
    least, most = min([least, *near]), max([most, *near])
    if axis.scale == "log":
        factor = 2.0 if least == most else (most / least) ** 0.04
        return least / factor, most * factor
    margin = (most - least) * 0.05 or abs(most) * 0.1 or 0.5
    low = 0.0 if 0 <= least <= (most - least) * NEAR_ZERO else least - margin
    return low, min(most + margin, 1.02) if axis.unit == "share" and most <= 1 else most + margin


def ticks(low: float, high: float, unit: Unit, scale: Scale = "linear", most: int = MAX_TICKS) -> list[float]:
    """Return where an axis has its marks, ascending."""
    if scale == "log":
        return _log_ticks(low, high, unit, most)
    if not high > low:
        return [low]
    step = next(step for step in _steps(unit, (high - low) / most / 10) if (high - low) / step < most - 1e-6)
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


def tick_label(value: float, unit: Unit) -> str:
    """Return what a mark is called: ``"1 min 30 s"``, ``"50 MB"``, ``"80 %"``."""
    match unit:
        case "share":
            return f"{round(100 * value, 6):g} %"
        case "1" if abs(value) < 10_000:
            return f"{round(value, 9):g}"
        case _:
            return amount(value, unit)


def _steps(unit: Unit, least: float) -> Iterator[float]:
    """Yield steps between marks, ascending, from one that is not above ``least``, unless time has none."""
    first = math.floor(math.log10(least))
    if unit == "s":
        yield from (many * 10.0**power for power in range(first, 0) for many in (1, 2, 5))
        yield from _CLOCK_S
        yield from (_DAY_S * many * 10**power for power in range(9) for many in (1, 2, 5))
    while True:
        yield from (many * 10.0**first for many in (1, 2, 5))
        first += 1


def _log_ticks(low: float, high: float, unit: Unit, most: int) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    decimal = [10.0**power for power in powers]
    finer = [many * power for power in decimal for many in (1, 2, 5)]
    if unit == "s":
        days = [_DAY_S * 10.0**power for power in range(9)]
        decimal = [*(value for value in decimal if value < 1), *_ROUND_S, *days]
        finer = [*(value for value in finer if value < 1), *_CLOCK_S, *days]
    marks = [value for value in decimal if low <= value <= high]
    if len(marks) < 2:
        marks = [value for value in finer if low <= value <= high]
    return marks[:: max(1, math.ceil(len(marks) / most))]
