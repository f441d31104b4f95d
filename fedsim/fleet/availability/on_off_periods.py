"""On- and off-periods on a loop: how many of them begin at or before a place, and clients that repeat them.

A renewal process has no formula for where it stands at an instant, so its durations are added up once, on a
loop of many cycles, and a client reads from a place on it, drawn uniformly. That is exactly a renewal process
begun long ago, across the seam too; a client meets its own past again only after :data:`CYCLES` cycles.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedsim.fleet.availability.base import TICKS_PER_S, Availability
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
        return int(self.instants.searchsorted(place, side="right"))

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


class Repeated(Availability):
    """Clients that repeat recorded ones, each from a place of its own in the recording.

    All recordings lie on one loop, one after the other. A period begins at each tick, inside a recording, at
    which the recorded client came or went.

    Args:
        intervals: For each recorded client its intervals of presence in ticks, sorted and apart, ``[n, 2]``.
        length: Ticks of each recording.
        time_scale_s: Time over which clients come and go, if any does, s.
        recorded: Which recording each client repeats, ``[num]``.
        starts: Ticks into the recording at which each client begins, ``[num]``.
    """

    def __init__(
        self, intervals: Sequence[Array], length: int, time_scale_s: float, recorded: Array, starts: Array
    ) -> None:
        super().__init__(len(recorded))
        self._length, self._recorded, self._starts = length, recorded, starts
        changes = [_changes(own, length) for own in intervals]
        instants = np.concatenate([own + number * length for number, own in enumerate(changes)])
        self._periods = Periods(instants, len(changes) * length)
        self._passed_before = np.cumsum([0, *map(len, changes)])
        self.time_scale_s = time_scale_s if len(instants) else None
        self._begins_there = np.array([len(own) > 0 and own[0, 0] == 0 for own in intervals])

    def _states(self, clients: Array, tick: int) -> Array:
        recorded = self._recorded[clients]
        places = (self._starts[clients] + tick % self._length) % self._length
        passed = self._periods.passed(recorded * np.int64(self._length) + places)
        odd = (passed - self._passed_before[recorded]) % 2 == 1
        states: Array = odd != self._begins_there[recorded]
        return states

    def _look(self, client: int, tick: int) -> tuple[bool, int | None]:
        recorded = int(self._recorded[client])
        start, place = recorded * self._length, (int(self._starts[client]) + tick) % self._length
        first, last = self._passed_before[recorded : recorded + 2].tolist()
        passed = self._periods.passed_at(start + place)
        is_there = ((passed - first) % 2 == 1) != bool(self._begins_there[recorded])
        if passed < last:
            return is_there, tick + int(self._periods.instants[passed]) - start - place
        end = tick + self._length - place
        if (last - first) % 2:
            # It ends otherwise than it begins, so something changes at the seam.
            return is_there, end
        return is_there, end + int(self._periods.instants[first]) - start if last > first else None


def _changes(intervals: Array, length: int) -> Array:
    """Return the ticks inside a recording at which its client came or went."""
    # Where one interval ends as another begins, nobody comes or goes.
    edges, counts = np.unique(intervals, return_counts=True)
    changes: Array = edges[(counts == 1) & (edges > 0) & (edges < length)]
    return changes
