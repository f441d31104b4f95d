"""Means over seeds, with their 95 % intervals: by Student's t, or by the bootstrap.

Student's t takes the values of seeds to be normally distributed; then it holds the mean in 95 % of studies
with two seeds as with ten. The bootstrap assumes no distribution: it draws as many values as there are, with
replacement, :data:`RESAMPLES` times, and takes quantiles of the means. Plain quantiles would be too narrow
with few seeds, so they lie farther out (the expanded percentile interval of Hesterberg, 2015, "What teachers
should know about the bootstrap", The American Statistician 69, section 4.2). No interval of a bootstrap is
longer than from the least value to the largest, and of less than :data:`MIN_BOOTSTRAP_SEEDS` seeds even
these hold the mean in fewer than 95 % of studies: so with fewer there is none.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from fedsim.params import Array
from fedsim.rng import Key

Method = Literal["t", "bootstrap"]

CONFIDENCE = 0.95

MIN_BOOTSTRAP_SEEDS = 6
"""Values of which a bootstrap makes an interval: ``1 - 2**(1 - n)`` is at least 95 % from 6 on, the chance
that neither all of n values lie below the middle of their distribution nor all above it."""

RESAMPLES = 10_000

WORDS: dict[Method, str] = {
    "t": "95 % interval over seeds (Student's t)",
    "bootstrap": f"95 % interval over seeds (bootstrap; none of fewer than {MIN_BOOTSTRAP_SEEDS})",
}
"""Descriptions of intervals in tables."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its 95 % interval, whose ends are None where there are too few values."""

    mean: float
    low: float | None
    high: float | None
    count: int

    @property
    def half(self) -> float | None:
        """Half of the interval's length."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2


def interval(values: Sequence[float], method: Method = "t") -> Interval | None:
    """Return the mean of values with its interval; None without values."""
    count = len(values)
    if not count:
        return None
    mean, low, high = statistics.fmean(values), None, None
    if method == "bootstrap" and count >= MIN_BOOTSTRAP_SEEDS:
        means = np.array(values)[_resamples(count)].mean(axis=1)
        low, high = (float(end) for end in np.quantile(means, _levels(count)))
    elif method == "t" and count > 1:
        half = _t(count) * statistics.stdev(values) / math.sqrt(count)
        low, high = mean - half, mean + half
    return Interval(mean, low, high, count)


def is_best(
    value: Interval | None, values: Sequence[Interval | None], seeds: int, *, highest: bool = False
) -> bool:
    """Whether a mean over every seed is the best of several that are not all equal.

    A mean that half of its interval exceeds may be anything, and is not called the best.
    """
    means = {other.mean for other in values if other is not None and other.count == seeds}
    if value is None or value.count < seeds or len(means) < 2:
        return False
    return value.mean == (max if highest else min)(means) and (value.half or 0.0) <= abs(value.mean)


def _t(count: int) -> float:
    from scipy.special import stdtrit  # takes 0.2 s to import, and commands import this file

    return float(stdtrit(count - 1, (1 + CONFIDENCE) / 2))


def _levels(count: int) -> tuple[float, float]:
    """Return the quantiles of resampled means between which the mean is."""
    from scipy.special import ndtr

    tail = float(ndtr(-math.sqrt(count / (count - 1)) * _t(count)))
    return tail, 1 - tail


@lru_cache(maxsize=16)
def _resamples(count: int) -> Array:
    """Return which of so many values each resample draws, int64 ``[RESAMPLES, count]``: always the same."""
    return Key.root(0).child("bootstrap", count).numpy().integers(count, size=(RESAMPLES, count))
