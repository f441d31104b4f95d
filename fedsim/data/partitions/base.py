"""The base of partitions, pure functions that say which client holds which sample (specification 6.2).

Letters for shapes: n samples, K clients, N classes. A partition gets labels and users, but not the samples.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedsim.data.base import Counts, Indices, Labels
from fedsim.errors import DataError
from fedsim.plugins import C, Plugin, name_of
from fedsim.rng import Key
from fedsim.shares import apportion


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """The samples that a partition spreads: the label of each, and perhaps its user.

    Attributes:
        labels: (n,), int64, each in [0, num_classes), or the float32 targets of a regression.
        num_classes: N; 0 for a regression.
        users: int64 (n,), the user who made each sample; None if that is not known.
    """

    labels: Labels
    num_classes: int
    users: Indices | None = None

    def __len__(self) -> int:
        return len(self.labels)


class PartitionPlugin(Plugin[C], ABC):
    """Base of the partitions."""

    @abstractmethod
    def split(self, pool: Pool, num_clients: int, key: Key) -> list[Indices]:
        """Return the positions in the pool of each client's samples; no position occurs twice.

        Args:
            pool: The samples to spread.
            num_clients: K, at least 1.
            key: Randomness of the draw; equal arguments give equal results.

        Raises:
            DataError: These samples cannot be spread as asked.
        """


class ClassPartition(PartitionPlugin[C]):
    """Base of the partitions by class: they say how many samples of each class each client gets.

    Attributes:
        order_first: Whether the order of the samples is drawn before :meth:`counts` draws, or after it.
    """

    order_first: ClassVar[bool] = False

    @abstractmethod
    def counts(self, totals: Counts, num_clients: int, generator: np.random.Generator) -> Counts:
        """Return int64 (K, N), each client's number of samples of each class.

        Args:
            totals: int64 (N,), the pool's samples of each class, which are the most that can be given.
            num_clients: K.
            generator: Randomness of the draw.

        Raises:
            DataError: These samples cannot be spread as asked.
        """

    def split(self, pool: Pool, num_clients: int, key: Key) -> list[Indices]:
        """Deal each class's samples, in a drawn order, to the clients.

        Raises:
            DataError: The labels are the targets of a regression, or there are too few samples.
        """
        if pool.labels.dtype.kind == "f":
            raise DataError(
                f"{name_of(self)} spreads classes, but the labels of this data set are the targets of a "
                "regression: use iid, or by_user where samples have users"
            )
        require_samples(len(pool), num_clients)
        labels, generator = pool.labels.astype(np.int64, copy=False), key.numpy()
        totals = np.bincount(labels, minlength=pool.num_classes)
        if self.order_first:
            classes = by_class(labels, pool.num_classes, generator)
            return cut(classes, self.counts(totals, num_clients, generator))
        counts = self.counts(totals, num_clients, generator)
        return cut(by_class(labels, pool.num_classes, generator), counts)

    def require_holders(self, totals: Counts, holds: NDArray[np.bool_], least: int = 1) -> None:
        """Raise if a class has too few samples to give each of its holders ``least`` of them."""
        holders = holds.sum(axis=0)
        for j in np.flatnonzero(totals < least * holders):
            raise DataError(
                f"class {j} has {totals[j]} samples for the {holders[j]} of {len(holds)} clients that hold "
                f"it under {name_of(self)}, each of which gets at least {least}: use fewer clients or a "
                "larger data set" + (", or lower least" if least > 1 else "")
            )

    def redrawn(self, draw: Callable[[], Counts], num_draws: int, min_size: int, setting: str) -> Counts:
        """Draw counts until every client has ``min_size`` samples, and return them."""
        best = -1
        for _ in range(num_draws):
            counts = draw()
            smallest = int(counts.sum(axis=1).min())
            if smallest >= min_size:
                return counts
            best = max(best, smallest)
        raise DataError(
            f"{num_draws} draws of {name_of(self)} with {setting} = {getattr(self.config, setting):g} over "
            f"{len(counts)} clients and {counts.sum()} samples: in the best of them the smallest client had "
            f"{best}, but min_size is {min_size}. Raise {setting}, lower min_size, or use fewer clients"
        )


def require_samples(num_samples: int, num_clients: int, per_client: int = 1) -> None:
    """Raise if there are fewer than ``per_client`` samples for each client."""
    if num_samples < num_clients * per_client:
        each = "one" if per_client == 1 else f"at least {per_client}"
        raise DataError(
            f"{num_samples} samples cannot give {each} to each of {num_clients} clients: "
            "use fewer clients, a larger data set or smaller held-out sets"
            + ("" if per_client == 1 else ", or lower min_size")
        )


def by_class(labels: NDArray[np.int64], num_classes: int, generator: np.random.Generator) -> list[Indices]:
    """Return for each class the positions of its samples, in an order drawn from ``generator``."""
    order = generator.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    return np.split(order, np.cumsum(np.bincount(labels, minlength=num_classes))[:-1])


def cut(pools: Sequence[Indices], counts: Counts) -> list[Indices]:
    """Deal each class's samples out in order, client after client; ``counts`` are (K, N)."""
    ends = np.cumsum(counts, axis=0)
    starts = ends - counts
    return [
        np.concatenate([pool[starts[k, j] : ends[k, j]] for j, pool in enumerate(pools)])
        for k in range(len(counts))
    ]


def apportion_to_all(total: int, weights: NDArray[np.float64]) -> Counts:
    """Apportion as :func:`apportion` does, but give each at least 1, which is taken from the largest."""
    counts = np.maximum(apportion(total, weights), 1)
    while counts.sum() > total:
        counts[counts.argmax()] -= 1
    return counts


def neighbouring_classes(num_clients: int, num_classes: int, hand: int = 2) -> NDArray[np.bool_]:
    """Return bool (K, N), which client holds which class if each holds ``hand`` neighbouring classes.

    Client k holds classes k, k + 1, ... modulo N; ``hand`` is at most N, or all are held.
    """
    return (np.arange(num_classes) - np.arange(num_clients)[:, None]) % num_classes < hand


def scaled(
    matrix: NDArray[np.float64], rows: NDArray[Any], columns: NDArray[Any], iterations: int
) -> NDArray[np.float64]:
    """Return ``matrix`` with its rows and columns scaled to sums near ``rows`` and ``columns``.

    Rows and columns are scaled in turn (Sinkhorn and Knopp 1967), columns last, so their sums are exact.
    """
    for _ in range(iterations):
        for axis, wanted in ((1, rows), (0, columns)):
            sums = matrix.sum(axis=axis)
            factors = np.divide(wanted, sums, out=np.zeros(len(sums)), where=sums > 0)
            matrix = matrix * np.expand_dims(factors, axis)
    return matrix
