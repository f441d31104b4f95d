"""Fewer points for curves that are drawn with more than can be seen; their data keep all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedsim.figures.chart_types import Line
from fedsim.params import Array

MAX_POINTS = 500
"""Of a curve."""


def kept(values: Array, most: int = MAX_POINTS) -> Array:
    """Return which values of a curve are kept, ascending: the first, the last, and extremes of equal pieces.

    NaN is a gap.
    """
    count = len(values)
    if count <= most:
        return np.arange(count)
    pieces = np.array_split(np.arange(1, count - 1), (most - 2) // 2)
    places = [np.array([0, count - 1])]
    for extreme, hole in ((np.argmin, np.inf), (np.argmax, -np.inf)):
        filled = np.where(np.isnan(values), hole, values)
        places.append(np.array([piece[extreme(filled[piece])] for piece in pieces]))
    return np.unique(np.concatenate(places))


def thinned(line: Line, most: int = MAX_POINTS) -> Line:
    """Return a line with so many points at most, extremes kept."""
    some = kept(line.y, most)
    low, high = (None if end is None else end[some] for end in (line.low, line.high))
    return replace(line, x=line.x[some], y=line.y[some], low=low, high=high)


def spread_over(count: int, most: int) -> Array:
    """Return ``most`` of the numbers below ``count``, in equal steps from the first to the last, or all."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64))
