"""A data set spread over clients: one pool of samples, and which client holds which of them in which split.

No samples are copied for a client. A split is a flat array of positions in the pool, with the offset at which
each client's positions begin, so a million clients need a few arrays and no objects.

The steps (specification 6): the public set and the global test set are taken out of the pool, as samples or
as whole users (``held_out_sets.py``); the rest is partitioned; each client's samples are shuffled and split
into train, validation and test. The result is a pure function of the data set, the settings and a key. A
public set from another data set takes nothing out of the pool: its samples are appended to the pool, without
labels.

Letters for shapes: n samples in the pool, K clients, N classes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsim.data.augmentations.base import Augmentations, check_images
from fedsim.data.base import Counts, Dataset, Indices, Labels, Samples, blamed
from fedsim.data.client_split import SPLITS, AnyShares, Split, choices_of, split_client
from fedsim.data.held_out_sets import hold_out
from fedsim.data.partitions.base import PartitionPlugin, Pool, by_class
from fedsim.data.public_from_other_data import augmented, drawn_from
from fedsim.data.spreading_settings import Spreading
from fedsim.errors import DataError, InvariantError
from fedsim.plugins import name_of
from fedsim.rng import Key
from fedsim.task import Task


@dataclass(frozen=True, slots=True, eq=False)
class Holdings:
    """The samples that each client holds in one split.

    Attributes:
        offsets: int64 (K + 1,); client k's samples are ``flat[offsets[k]:offsets[k + 1]]``.
    """

    offsets: Indices
    flat: Indices | None

    def __post_init__(self) -> None:
        _freeze(self.offsets, self.flat)


@dataclass(frozen=True, slots=True, eq=False)
class FederatedData:
    """A data set spread over clients. All arrays are read-only.

    Attributes:
        x: (n, *input_shape) of the task's ``dtype``, the pool; empty where there are counts only.
        y: (n,) of the task's ``label_dtype``, labels of the pool; empty where there are counts only. Where
            the public set is not labelled, its labels are -1, or NaN for a regression.
    """

    task: Task
    x: Samples
    y: Labels
    public: Indices
    global_test: Indices
    num_clients: int
    holdings: Mapping[Split, Holdings]
    public_labelled: bool = True
    public_at_clients: bool = True
    class_names: tuple[str, ...] | None = None
    augmentations: Augmentations = ()

    def __post_init__(self) -> None:
        _freeze(self.x, self.y, self.public, self.global_test)

    @property
    def has_samples(self) -> bool:
        """Whether there are samples, rather than only counts of them."""
        return self.holdings["train"].flat is not None

    def indices(self, client: int, split: Split) -> Indices:
        """Return the positions in the pool of one client's samples, ascending."""
        holdings = self.holdings[split]
        first, end = self._run(client, holdings)
        return self._flat(holdings)[first:end]

    def indices_of(self, clients: Indices, split: Split) -> Indices:
        """Return the positions in the pool of some clients' samples, of one client after the other."""
        holdings = self.holdings[split]
        first, count = holdings.offsets[clients], self.sizes_of(clients, split)
        within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        positions: Indices = self._flat(holdings)[np.repeat(first, count) + within]
        return positions

    def pooled(self, split: Split, clients: Sequence[int] | None = None) -> Indices:
        """Return the positions of a split's samples of all clients, or of some, ascending."""
        flat = self._flat(self.holdings[split])
        if clients is not None:
            flat = np.concatenate([flat[:0], *(self.indices(client, split) for client in clients)])
        return np.sort(flat)

    def num_samples(self, client: int, split: Split) -> int:
        """Return how many samples a client has in a split."""
        first, end = self._run(client, self.holdings[split])
        return end - first

    def sizes_of(self, clients: Indices, split: Split) -> Counts:
        """Return how many samples clients have in a split, int64 ``[clients]``."""
        offsets = self.holdings[split].offsets
        return offsets[clients + 1] - offsets[clients]

    def sizes(self, split: Split) -> Counts:
        """Return int64 (K,), how many samples each client has in a split."""
        return np.diff(self.holdings[split].offsets)

    def _run(self, client: int, holdings: Holdings) -> tuple[int, int]:
        if not 0 <= client < self.num_clients:
            raise IndexError(
                f"client {client} does not exist: clients are numbered 0 to {self.num_clients - 1}"
            )
        return holdings.offsets.item(client), holdings.offsets.item(client + 1)

    def _flat(self, holdings: Holdings) -> Indices:
        if holdings.flat is None:
            raise DataError(
                "this data set has sample counts only, and no samples to train or evaluate on: "
                "use the null executor, or a data set with samples"
            )
        return holdings.flat


def federate(
    dataset: Dataset, partition: PartitionPlugin[Any] | None, spreading: Spreading, key: Key
) -> FederatedData:
    """Spread a data set over clients.

    A data set of counts only takes no partition: its counts are training samples, and there are no validation
    and test samples.
    """
    check_images(spreading.augmentations, dataset.task)
    if dataset.sizes is not None:
        return _counts_only(dataset.task, dataset.sizes, partition, spreading)
    if partition is None:
        raise DataError("a data set with samples needs a partition, such as iid")
    num_classes = 0 if dataset.task.kind == "regression" else dataset.task.num_outputs
    x, y, users, own_test = _pool(dataset, num_classes, spreading.limit, key.child("limit"))
    total, has_test = len(y) - len(own_test), len(own_test) > 0
    public, test, rest = hold_out(total, users, spreading, has_test, key.child("hold_out"))
    pool = Pool(y[rest], num_classes, None if users is None else users[rest])
    held = _partitioned(pool, partition, spreading.num_clients, key.child("partition"))
    holdings = _split((rest[np.sort(positions)] for positions in held), y, spreading.shares, key)
    if spreading.public_source is not None:
        size = spreading.public_size
        public = np.arange(len(y), len(y) + size)
        x = _joined(x, drawn_from(spreading.public_source, dataset.task, size, key.child("public")))
        # Placeholders: no loss accepts these values, so a use of them is noticed.
        y = _joined(y, np.full(size, np.nan if y.dtype.kind == "f" else -1, y.dtype))
    if dataset.standardise:
        x = _standardised(x, holdings["train"].flat)
    if spreading.public_augment != "none" and len(public):
        x = x.copy()
        x[public] = augmented(x[public], key.child("augment"))
    return FederatedData(
        dataset.task,
        x,
        y,
        public=public,
        global_test=own_test if has_test else test,
        num_clients=spreading.num_clients,
        holdings=holdings,
        public_labelled=spreading.public_source is None,
        public_at_clients=spreading.public_at_clients,
        class_names=dataset.class_names,
        augmentations=spreading.augmentations,
    )


def _partitioned(pool: Pool, partition: PartitionPlugin[Any], num_clients: int, key: Key) -> list[Indices]:
    """Return each client's positions in a pool."""
    with blamed("partition"):
        held = partition.split(pool, num_clients, key)
    name = name_of(partition)
    if len(held) != num_clients:
        raise InvariantError(f"partition {name} has samples for {len(held)} clients instead of {num_clients}")
    every = np.concatenate(held)
    if len(every) and not 0 <= every.min() <= every.max() < len(pool.labels):
        raise InvariantError(f"partition {name} gave out samples that do not exist")
    if len(every) and np.bincount(every).max() > 1:
        raise InvariantError(f"partition {name} gave out a sample twice")
    return held


def _split(held: Iterable[Indices], y: Labels, shares: AnyShares, key: Key) -> dict[Split, Holdings]:
    """Split each client's samples, whose positions are ascending, into train, validation and test."""
    choices = choices_of(shares)
    parts = [list[Indices]() for _ in SPLITS]
    for client, positions in enumerate(held):
        shuffled = key.child("split", client).numpy().permutation(positions)
        own = choices[0]
        if len(choices) > 1:
            own = choices[key.child("shares", client).numpy().integers(len(choices))]
        for part, indices in zip(parts, split_client(y[shuffled], own), strict=True):
            # Ascending, so that the pooled samples of one client are in that client's own order.
            part.append(np.sort(shuffled[indices]))
    return {
        name: Holdings(np.cumsum([0, *map(len, part)]), np.concatenate(part))
        for name, part in zip(SPLITS, parts, strict=True)
    }


def _pool(
    dataset: Dataset, num_classes: int, limit: int | None, key: Key
) -> tuple[Samples, Labels, Indices | None, Indices]:
    """Return the pool's samples and labels, test part last; its users; the positions of the test part."""
    x, y, test_x, test_y, users = dataset.x, dataset.y, dataset.test_x, dataset.test_y, dataset.users
    if x is None or y is None:
        raise InvariantError("a data set without samples has counts")
    if limit is not None and limit < len(y):
        generator = key.numpy()
        num_classes = num_classes if users is None else 0
        if test_x is not None and test_y is not None:
            size = max(math.floor(limit / len(y) * len(test_y) + 0.5), 1)
            chosen = _subset(test_y, size, num_classes, generator)
            test_x, test_y = test_x[chosen], test_y[chosen]
        chosen = _subset(y, limit, num_classes, generator)
        x, y, users = x[chosen], y[chosen], None if users is None else users[chosen]
    if test_x is None or test_y is None:
        return x, y, users, np.empty(0, np.int64)
    own_test = np.arange(len(y), len(y) + len(test_y))
    return _joined(x, test_x), _joined(y, test_y), users, own_test


def _subset(labels: Labels, size: int, num_classes: int, generator: np.random.Generator) -> Indices:
    """Return ``size`` positions, ascending: equally many of each class, or any if there are no classes."""
    if not num_classes:
        return np.sort(generator.permutation(len(labels))[:size])
    classes = by_class(labels.astype(np.int64, copy=False), num_classes, generator)
    room = np.array([len(samples) for samples in classes])
    counts = np.zeros(num_classes, np.int64)
    while left := min(size, len(labels)) - int(counts.sum()):
        # What used-up classes cannot give comes from the others, and a remainder from random classes.
        unspent = np.flatnonzero(room > counts)
        if left < len(unspent):
            counts[generator.permutation(unspent)[:left]] += 1
        else:
            counts[unspent] += np.minimum(left // len(unspent), (room - counts)[unspent])
    return np.sort(np.concatenate([some[:n] for some, n in zip(classes, counts, strict=True)]))


def _counts_only(
    task: Task, sizes: Counts, partition: PartitionPlugin[Any] | None, spreading: Spreading
) -> FederatedData:
    if partition is not None:
        raise DataError("a data set of counts only has no samples to spread: leave out the partition")
    num_clients = spreading.num_clients
    if len(sizes) != num_clients:
        raise DataError(f"the data set has counts for {len(sizes)} clients, but the run has {num_clients}")
    none = Holdings(np.broadcast_to(np.int64(0), num_clients + 1), None)
    return FederatedData(
        task,
        np.empty((0, *task.input_shape), task.dtype),
        np.empty(0, task.label_dtype),
        np.arange(spreading.public_size),
        np.empty(0, np.int64),
        num_clients,
        {"train": Holdings(np.insert(np.cumsum(sizes), 0, 0), None), "val": none, "test": none},
        public_at_clients=spreading.public_at_clients,
        augmentations=spreading.augmentations,
    )


def _standardised(x: Samples, train: Indices | None) -> Samples:
    """Return samples whose scalars have mean 0 and deviation 1 over ``train``, or 0 if they are equal."""
    known = x[train].astype(np.float64)
    deviation = known.std(axis=0)
    result: Samples = ((x - known.mean(axis=0)) / np.where(deviation > 0, deviation, 1)).astype(np.float32)
    return result


def _joined(first: Any, second: Any) -> Any:
    return np.concatenate([first, second])


def _freeze(*arrays: NDArray[Any] | None) -> None:
    for array in arrays:
        if array is not None:
            array.flags.writeable = False
