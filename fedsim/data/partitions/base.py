"""What a partition is: a pure function from labels to who holds which sample (specification 6.2).

Letters for shapes: n samples, K clients, N classes. A partition never sees the samples themselves.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedsim.data.base import Counts, Indices, Labels
from fedsim.errors import DataError
from fedsim.plugins import C, Plugin
from fedsim.rng import Key


class PartitionPlugin(Plugin[C], ABC):
    """Base of the partitions."""

    @abstractmethod
    def split(self, labels: Labels, num_clients: int, num_classes: int, key: Key) -> list[Indices]:
        """Return for each client the positions in ``labels`` of its samples; no position twice.

        Args:
            labels: int64 (n,), each in [0, num_classes).
            num_clients: K, at least 1.
            num_classes: N.
            key: Decides the draw: equal arguments give equal results.

        Raises:
            DataError: These samples cannot be spread as asked.
        """


def require_samples(num_samples: int, num_clients: int, per_client: int = 1) -> None:
    """Refuse to spread fewer than ``per_client`` samples for each client.

    Raises:
        DataError: There are too few.
    """
    if num_samples < num_clients * per_client:
        each = "one" if per_client == 1 else f"at least {per_client}"
        raise DataError(
            f"{num_samples} samples cannot give {each} to each of {num_clients} clients: "
            "use fewer clients, a larger data set or smaller held-out sets"
            + ("" if per_client == 1 else ", or lower min_size")
        )


def by_class(labels: Labels, num_classes: int, generator: np.random.Generator) -> list[Indices]:
    """Return for each class the positions of its samples, in an order drawn from ``generator``."""
    order = generator.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    return np.split(order, np.cumsum(np.bincount(labels, minlength=num_classes))[:-1])


def cut(pools: Sequence[Indices], counts: Counts) -> list[Indices]:
    """Deal each class's samples out in order, client after client.

    Args:
        pools: For each class, the positions of its samples.
        counts: int64 (K, N), how many samples of each class each client gets; a column's sum is at most the
            length of that class's pool.

    Returns:
        For each client its positions, class after class.
    """
    ends = np.cumsum(counts, axis=0)
    starts = ends - counts
    return [
        np.concatenate([pool[starts[k, j] : ends[k, j]] for j, pool in enumerate(pools)])
        for k in range(len(counts))
    ]


def apportion(total: int, weights: NDArray[np.float64]) -> Counts:
    """Return whole numbers in proportion to ``weights`` that sum to ``total``, by largest remainders.

    Args:
        total: At least 0.
        weights: Non-negative, at least one positive. The first of equal remainders is rounded up.
    """
    exact = total * (weights / weights.sum())
    counts: Counts = np.floor(exact).astype(np.int64)
    # The most that is left is one for each weight: each floor lost less than one.
    largest_first = np.argsort(counts - exact, kind="stable")
    counts[largest_first[: total - int(counts.sum())]] += 1
    return counts
