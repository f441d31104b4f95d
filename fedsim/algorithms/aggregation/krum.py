"""Rules that choose the replies that are near to most others.

Blanchard, El Mhamdi, Guerraoui, Stainer: Machine Learning with Adversaries: Byzantine Tolerant Gradient
Descent, NeurIPS 2017 (arXiv 1703.02757). A reply's score is its mean squared distance to the m - f - 1
nearest others, as in the library byzfl; the paper takes m - f - 2.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedsim.algorithms.aggregation.base import Warn, WithstandsAttackers
from fedsim.params import Array, Tree, weighted_mean


class Krum(WithstandsAttackers):
    """The reply with the least score: the one that is nearest to most others."""

    def combine(self, vectors: Sequence[Tree], origin: Tree, warn: Warn) -> Tree:
        """Return one of the vectors."""
        scores = _scores(vectors, self.num_attackers(len(vectors), warn))
        return vectors[int(np.argmin(scores))]


class MultiKrum(WithstandsAttackers):
    """The mean of the m - f replies with the least scores."""

    def combine(self, vectors: Sequence[Tree], origin: Tree, warn: Warn) -> Tree:
        """Return the mean of these vectors."""
        f = self.num_attackers(len(vectors), warn)
        chosen = np.argsort(_scores(vectors, f), kind="stable")[: len(vectors) - f]
        return weighted_mean([vectors[place] for place in sorted(chosen)], [1 / len(chosen)] * len(chosen))


def _scores(vectors: Sequence[Tree], f: int) -> Array:
    """Return the sum of the squared distances of each vector to the m - f - 1 nearest others, ``[m]``."""
    m = len(vectors)
    distances = np.zeros((m, m))
    for name in vectors[0]:
        rows = np.stack([vector[name].reshape(-1) for vector in vectors]).astype(np.float64)
        for first in range(m - 1):
            distances[first, first + 1 :] += np.square(rows[first + 1 :] - rows[first]).sum(axis=1)
    distances += distances.T
    nearest = np.sort(distances, axis=1)[:, 1 : max(2, m - f)]  # without its distance to itself
    scores: Array = nearest.sum(axis=1)
    return scores


PLUGINS = {"krum": Krum, "multi_krum": MultiKrum}
