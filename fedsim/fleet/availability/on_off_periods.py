"""On- and off-periods on a loop, and fast answers to how many of them begin at or before a place.

A renewal process has no formula for where it stands at an instant: one has to add up its durations from the
start. So the durations are added up once, on a loop of many cycles, and a client is a place on it to read
from. The place is drawn uniformly, and a loop has no end. What a client then does is
exactly a renewal process, begun at a random instant long ago: the law at every instant is the stationary one,
and intervals follow each other with independent durations from the given laws, across the seam too. Two
clients whose places happen to be near each other live through the same durations, one after the other; on a
loop of :data:`CYCLES` cycles that is rare, and a client meets its own past again only after so many cycles.

To find a place needs no search: the loop is divided into as many equal parts as there are instants, and a
table says how many instants lie before each part, so that few remain to be looked at.
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
        self._width = length // max(len(instants), 1) + 1
        edges = np.arange(length // self._width + 1, dtype=np.int64) * self._width
        self._before = np.searchsorted(instants, edges, side="right")
        # A last instant that no place reaches ends every walk.
        self.instants = np.append(instants, np.iinfo(np.int64).max)

    def passed_at(self, place: int) -> int:
        """Return how many instants lie at or before one place, below ``length``."""
        count: int = self._before.item(place // self._width)
        while self.instants.item(count) <= place:
            count += 1
        return count

    def passed(self, places: Array) -> Array:
        """Return how many instants lie at or before each of the places ``[n]``, all below ``length``."""
        counts: Array = self._before[places // self._width]
        walking = np.flatnonzero(self.instants[counts] <= places)
        while len(walking):
            counts[walking] += 1
            walking = walking[self.instants[counts[walking]] <= places[walking]]
        return counts


def lognormal_periods(medians_s: Sequence[float], sigma: float, key: Key) -> Periods:
    """Return a loop of intervals with log-normal durations, whose medians take turns.

    Each interval begins at one of the instants, the first at 0.
    """
    normal = key.numpy().standard_normal((CYCLES, len(medians_s)))
    durations_s = np.array(medians_s) * np.exp(sigma * normal)
    durations = np.maximum(np.rint(durations_s * TICKS_PER_S), 1).astype(np.int64).ravel()
    ends = np.cumsum(durations)
    return Periods(ends - durations, int(ends[-1]))
