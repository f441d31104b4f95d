"""Rules that combine each scalar of the models by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fedsim.algorithms.aggregation.base import RobustRule, Warn, WithstandsAttackers
from fedsim.config import Config
from fedsim.params import Array, Tree, freeze


class Median(RobustRule[Config]):
    """The median of each parameter over the replies.

    Yin, Chen, Ramchandran, Bartlett: Byzantine-Robust Distributed Learning: Towards Optimal Statistical
    Rates, ICML 2018 (arXiv 1803.01498), option I.
    """

    def combine(self, vectors: Sequence[Tree], origin: Tree, warn: Warn) -> Tree:
        """Return the medians; of an even number of replies the mean of the two in the middle."""
        return _each(vectors, _median)

    def combine_buffers(self, buffers: Sequence[Tree]) -> Tree:
        """Return the medians of running statistics."""
        return _each(buffers, _median)


class TrimmedMean(WithstandsAttackers):
    """The mean of each parameter over the replies without the f largest and the f smallest values.

    Yin, Chen, Ramchandran, Bartlett: Byzantine-Robust Distributed Learning: Towards Optimal Statistical
    Rates, ICML 2018 (arXiv 1803.01498), option II.
    """

    def combine(self, vectors: Sequence[Tree], origin: Tree, warn: Warn) -> Tree:
        """Return the trimmed means."""
        return self._trimmed(vectors, self.num_attackers(len(vectors), warn))

    def combine_buffers(self, buffers: Sequence[Tree]) -> Tree:
        """Return the trimmed means of running statistics."""
        return self._trimmed(buffers, self.most_attackers(len(buffers)))

    @staticmethod
    def _trimmed(trees: Sequence[Tree], f: int) -> Tree:
        return _each(trees, lambda rows: np.sort(rows, axis=0)[f : len(rows) - f].mean(0, np.float64))


def _median(rows: Array) -> Array:
    ordered, middle = np.sort(rows, axis=0), (len(rows) - 1) // 2
    pair = ordered[middle : len(rows) - middle]  # one, or two of an even number
    median: Array = pair.mean(axis=0, dtype=np.float64)
    return median


def _each(trees: Sequence[Tree], combine: Callable[[Array], Array]) -> Tree:
    """Return a tree whose floating arrays are combined one by one; counters take the largest value.

    Args:
        trees: m trees of one form.
        combine: Given arrays ``[m, ...]``, returns one.
    """
    combined = dict[str, Array]()
    for name, array in trees[0].items():
        rows = np.stack([tree[name] for tree in trees])
        is_float = array.dtype.kind == "f"
        combined[name] = np.asarray(combine(rows) if is_float else rows.max(axis=0)).astype(array.dtype)
    return freeze(combined)


PLUGINS = {"median": Median, "trimmed_mean": TrimmedMean}
