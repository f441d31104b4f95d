"""Which classes a model takes for which: counts of samples by true and by predicted class.

Letters for shapes: N classes, c cells, of which there are never more than samples.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]
Shares = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Confusion:
    """A confusion matrix: non-zero cells, ``true * N + predicted`` ascending, and their counts."""

    num_classes: int
    cells: Counts
    counts: Counts

    @classmethod
    def of(cls, labels: Counts, predicted: Counts, num_classes: int) -> Confusion:
        """Count samples by their true and their predicted classes, int64 ``[n]`` both."""
        return cls(num_classes, *np.unique(labels * num_classes + predicted, return_counts=True))

    @classmethod
    def sum(cls, parts: Iterable[Confusion]) -> Confusion | None:
        """Return the counts of several sets of samples together; None where there are no sets."""
        there = list(parts)
        if not there:
            return None
        cells, places = np.unique(np.concatenate([part.cells for part in there]), return_inverse=True)
        counts = np.zeros(len(cells), np.int64)
        np.add.at(counts, places, np.concatenate([part.counts for part in there]))
        return cls(there[0].num_classes, cells, counts)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Confusion)
            and self.num_classes == other.num_classes
            and np.array_equal(self.cells, other.cells)
            and np.array_equal(self.counts, other.counts)
        )

    __hash__ = None  # type: ignore[assignment]

    @property
    def true(self) -> Counts:
        """True class of each cell, ``[c]``."""
        return self.cells // self.num_classes

    @property
    def predicted(self) -> Counts:
        """Predicted class of each cell, ``[c]``."""
        return self.cells % self.num_classes

    @property
    def matrix(self) -> Counts:
        """All cells, int64 ``[N, N]``: rows are true classes, columns predicted ones."""
        full = np.zeros(self.num_classes**2, np.int64)
        full[self.cells] = self.counts
        return full.reshape(self.num_classes, self.num_classes)

    @property
    def num_samples(self) -> Counts:
        """Samples of each class, ``[N]``."""
        return self._summed(self.true, self.counts)

    @property
    def num_predicted(self) -> Counts:
        """Samples taken for each class, ``[N]``."""
        return self._summed(self.predicted, self.counts)

    @property
    def num_correct(self) -> Counts:
        """Samples of each class that are taken for it, ``[N]``."""
        hits = self.true == self.predicted
        return self._summed(self.true[hits], self.counts[hits])

    @property
    def recall(self) -> Shares:
        """Share of a class's samples that are taken for it, its accuracy, ``[N]``; NaN without samples."""
        return _share(self.num_correct, self.num_samples)

    @property
    def precision(self) -> Shares:
        """Share of the samples taken for a class that are of it, ``[N]``; NaN where none is."""
        return _share(self.num_correct, self.num_predicted)

    @property
    def f1(self) -> Shares:
        """Harmonic mean of precision and recall, ``[N]``; NaN for a class that has and is given no sample."""
        return _share(2 * self.num_correct, self.num_samples + self.num_predicted)

    @property
    def macro_f1(self) -> float | None:
        """Unweighted mean of F1 over the classes that have or are given samples; None without samples."""
        f1 = self.f1
        there = ~np.isnan(f1)
        return float(f1[there].mean()) if there.any() else None

    def _summed(self, classes: Counts, counts: Counts) -> Counts:
        sums = np.zeros(self.num_classes, np.int64)
        np.add.at(sums, classes, counts)
        return sums


def _share(part: Counts, whole: Counts) -> Shares:
    shares: Shares = np.full(len(part), np.nan)
    np.divide(part, whole, out=shares, where=whole > 0)
    return shares
