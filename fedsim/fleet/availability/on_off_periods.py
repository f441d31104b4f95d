"""On- and off-periods on a loop, and how many of them begin at or before a place.

A renewal process has no formula for where it stands at an instant, so its durations are added up once, on a
loop of many cycles, and a client reads from a place on it, drawn uniformly. That is exactly a renewal process
begun long ago, across the seam too; a client meets its own past again only after :data:`CYCLES` cycles.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedsim.fleet.availability.base import TICKS_PER_S
from fedsim.params import Array
from fedsim.rng import Key

CYCLES = 2**16
"""Cycles on the loop of a renewal process."""


class Periods:
    """Periods one after the other, by the instants at which they begin, from 0 to ``length``."""

    def __init__(self, instants: Array, length: int) -> None:
        self.length = length
        # With a last instant that no place reaches.
        self.instants = np.append(instants, np.iinfo(np.int64).max)

    def passed_at(self, place: int) -> int:
        """Return how many instants lie at or before one place, below ``length``."""
        return int(np.searchsorted(self.instants, place, side="right"))

    def passed(self, places: Array) -> Array:
        """Return how many instants lie at or before each of the places ``[n]``, all below ``length``."""
        return np.searchsorted(self.instants, places, side="right")


def lognormal_periods(medians_s: Sequence[float], sigma: float, key: Key) -> Periods:
    """Return a loop of intervals with log-normal durations, whose medians take turns.

    Each interval begins at one of the instants, the first at 0.
    """
    normal = key.numpy().standard_normal((CYCLES, len(medians_s)))
    durations_s = np.array(medians_s) * np.exp(sigma * normal)
    durations = np.maximum(np.rint(durations_s * TICKS_PER_S), 1).astype(np.int64).ravel()
    ends = np.cumsum(durations)
    return Periods(ends - durations, int(ends[-1]))
