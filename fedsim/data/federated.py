"""One pool of samples, and who holds which of them for what.

Nothing is copied for a client: a split is a flat array of positions in the pool, and the offsets at which
each client's run of it begins. A million clients therefore cost arrays and no objects.

The order of things (specification 6): the public set and the global test set are taken out of the pool; the
rest is partitioned; each client's samples are shuffled and split into train, validation and test. All of it
is a pure function of the data set, the settings and a key.

Letters for shapes: n samples in the pool, K clients, N classes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from fedsim.data.base import Counts, Dataset, Indices, Labels, Samples
from fedsim.data.partitions.base import PartitionPlugin
from fedsim.data.stratify import split_client
from fedsim.errors import DataError, InvariantError
from fedsim.plugins import name_of
from fedsim.rng import Key
from fedsim.task import Task

Split: TypeAlias = Literal["train", "val", "test"]
Shares: TypeAlias = tuple[float, float, float]

SPLITS: tuple[Split, ...] = get_args(Split)


@dataclass(frozen=True, slots=True, eq=False)
class Holdings:
    """Which samples each client holds, for one split.

    Attributes:
        offsets: int64 (K + 1,); client k's samples are ``flat[offsets[k]:offsets[k + 1]]``.
        flat: Positions in the pool; None where there are counts only.
    """

    offsets: Indices
    flat: Indices | None


@dataclass(frozen=True, slots=True, eq=False)
class FederatedData:
    """A data set spread over clients. All arrays are read-only.

    Attributes:
        task: Shape of one sample, and the number N of classes.
        x: float32 (n, *input_shape), the pool; empty where there are counts only.
        y: int64 (n,), labels of the pool; empty where there are counts only.
        public: Positions in the pool of the unlabelled public set, in an order drawn from the key. With
            counts only, the numbers 0 to public_size - 1, which stand for samples that do not exist.
        global_test: Positions of the global test set: the data set's own test part, or drawn from the key.
        num_clients: K.
        holdings: The clients' samples, for each split.
    """

    task: Task
    x: Samples
    y: Labels
    public: Indices
    global_test: Indices
    num_clients: int
    holdings: Mapping[Split, Holdings]

    @property
    def has_samples(self) -> bool:
        """Whether there are samples, or only counts of them."""
        return self.holdings["train"].flat is not None

    def indices(self, client: int, split: Split) -> Indices:
        """Return the positions in the pool of one client's samples, in an order drawn from the key.

        Raises:
            DataError: The data set is counts only.
        """
        holdings = self.holdings[split]
        first, end = self._run(client, holdings)
        return self._flat(holdings)[first:end]

    def num_samples(self, client: int, split: Split) -> int:
        """Return how many samples a client has in a split."""
        first, end = self._run(client, self.holdings[split])
        return end - first

    def sizes(self, split: Split) -> Counts:
        """Return int64 (K,), how many samples each client has in a split."""
        return np.diff(self.holdings[split].offsets)

    def label_counts(self, split: Split | None = None) -> Counts:
        """Return int64 (K, N), each client's samples of each class, in one split or in all three.

        Raises:
            DataError: The data set is counts only.
        """
        num_classes = self.task.num_outputs
        total = np.zeros(self.num_clients * num_classes, np.int64)
        for name in SPLITS if split is None else (split,):
            labels = self.y[self._flat(self.holdings[name])]
            owners = np.repeat(np.arange(self.num_clients), self.sizes(name))
            total += np.bincount(owners * num_classes + labels, minlength=len(total))
        return total.reshape(self.num_clients, num_classes)

    def _run(self, client: int, holdings: Holdings) -> tuple[int, int]:
        if not 0 <= client < self.num_clients:
            raise IndexError(f"client {client} does not exist, clients are 0 to {self.num_clients - 1}")
        return int(holdings.offsets[client]), int(holdings.offsets[client + 1])

    def _flat(self, holdings: Holdings) -> Indices:
        if holdings.flat is None:
            raise DataError(
                "this data set has sample counts only, and no samples to train or evaluate on: "
                "use the null executor, or a data set with samples"
            )
        return holdings.flat


def shares_fault(shares: Shares) -> str:
    """Say what is wrong with shares of train, validation and test; empty where nothing is."""
    if not all(math.isfinite(share) and 0 <= share <= 1 for share in shares):
        return f"shares of train, val and test are each from 0 to 1, these are {_listed(shares)}"
    if abs(sum(shares) - 1) > 1e-9:
        return f"shares of train, val and test sum to 1, {_listed(shares)} sum to {sum(shares):g}"
    if shares[0] == 0:
        return f"the share of train is above 0, of {_listed(shares)} nothing is left to train on"
    return ""


def federate(
    dataset: Dataset,
    partition: PartitionPlugin[Any] | None,
    *,
    num_clients: int,
    shares: Shares,
    key: Key,
    public_size: int = 0,
    global_test_share: float = 0.0,
    limit: int | None = None,
) -> FederatedData:
    """Spread a data set over clients.

    A data set of counts only has no samples to spread: it takes no partition, no limit and no global test
    set; its counts are training samples, and there are no validation and test samples.

    Args:
        dataset: What to spread.
        partition: Who holds which of the samples that are not held out; None for a data set of counts only.
        num_clients: K, at least 1.
        shares: Parts of each client's samples for train, validation and test; they sum to 1.
        key: Randomness of all draws.
        public_size: Samples held out as the public set.
        global_test_share: Part of all samples held out as the global test set, in ``[0, 1)``, where the data
            set has no test part of its own; where it has, that is the global test set.
        limit: Use only this many samples, drawn at random; the data set's own test part shrinks in
            proportion.

    Raises:
        DataError: The samples do not suffice, or a setting is out of its range.
        InvariantError: The partition gave a sample to two clients, or one that does not exist.
    """
    if num_clients < 1:
        raise DataError(f"{num_clients} clients: there is at least one")
    if public_size < 0 or not 0 <= global_test_share < 1:
        raise DataError(
            f"public_size = {public_size} and global_test_share = {global_test_share:g}: "
            "the first is at least 0, the second from 0 to below 1"
        )
    if fault := shares_fault(shares):
        raise DataError(fault)
    if dataset.sizes is not None:
        if partition is not None or global_test_share > 0 or limit is not None:
            raise DataError(
                "a data set of counts only has no samples to spread, test on or draw from: "
                "leave out the partition, the limit and the share of the global test set"
            )
        return _counts_only(dataset.task, dataset.sizes, num_clients, public_size)
    if partition is None:
        raise DataError("a data set with samples needs a partition, such as iid")

    x, y, own_test = _pool(dataset, limit, key.child("limit"))
    total = len(y) - len(own_test)
    num_tested = 0 if len(own_test) else math.floor(global_test_share * total + 0.5)
    kept = total - public_size - num_tested
    if kept < num_clients:
        raise DataError(
            f"of {total} samples, {public_size} are for the public set and {num_tested} for the global test "
            f"set, which leaves {max(kept, 0)} for {num_clients} clients: "
            "hold out fewer, use fewer clients, or more samples",
            setting=_to_blame(total, num_clients, public_size, num_tested, limit),
        )
    order = key.child("hold_out").numpy().permutation(total)
    public, drawn_test = order[:public_size], order[public_size : public_size + num_tested]
    rest = np.sort(order[public_size + num_tested :])
    try:
        held = partition.split(y[rest], num_clients, dataset.task.num_outputs, key.child("partition"))
    except DataError as error:
        raise DataError(str(error), setting="partition") from error
    _check(held, len(rest), num_clients, partition)

    parts: tuple[list[Indices], ...] = ([], [], [])
    for client, positions in enumerate(held):
        shuffled = rest[key.child("split", client).numpy().permutation(np.sort(positions))]
        for part, indices in zip(parts, split_client(y[shuffled], shares), strict=True):
            part.append(shuffled[indices])
    holdings = {name: _holdings(part) for name, part in zip(SPLITS, parts, strict=True)}
    global_test = own_test if len(own_test) else drawn_test
    return FederatedData(dataset.task, x, y, _frozen(public), _frozen(global_test), num_clients, holdings)


def _to_blame(total: int, num_clients: int, public_size: int, num_tested: int, limit: int | None) -> str:
    """Return the parameter of :func:`federate` that leaves too few samples."""
    if total < num_clients:
        return "limit" if limit == total else "num_clients"
    return "public_size" if public_size >= num_tested else "global_test_share"


def _pool(dataset: Dataset, limit: int | None, key: Key) -> tuple[Samples, Labels, Indices]:
    """Return samples and labels of the pool, its own test part last, and the positions of that part."""
    x, y, test_x, test_y = dataset.x, dataset.y, dataset.test_x, dataset.test_y
    if x is None or y is None:
        raise InvariantError("a data set without samples has counts")
    if limit is not None and limit < 1:
        raise DataError(f"limit = {limit}: use at least one sample, or leave the limit out")
    if limit is not None and limit < len(y):
        generator = key.numpy()
        if test_x is not None and test_y is not None:
            size = max(math.floor(limit / len(y) * len(test_y) + 0.5), 1)
            chosen = np.sort(generator.permutation(len(test_y))[:size])
            test_x, test_y = test_x[chosen], test_y[chosen]
        chosen = np.sort(generator.permutation(len(y))[:limit])
        x, y = x[chosen], y[chosen]
    if test_x is None or test_y is None:
        return _frozen(x), _frozen(y), np.empty(0, np.int64)
    own_test = np.arange(len(y), len(y) + len(test_y))
    return _frozen(np.concatenate([x, test_x])), _frozen(np.concatenate([y, test_y])), own_test


def _counts_only(task: Task, sizes: Counts, num_clients: int, public_size: int) -> FederatedData:
    if len(sizes) != num_clients:
        raise DataError(f"the data set counts the samples of {len(sizes)} clients, the run has {num_clients}")
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    none = Holdings(np.broadcast_to(np.int64(0), num_clients + 1), None)
    return FederatedData(
        task,
        _frozen(np.empty((0, *task.input_shape), np.float32)),
        _frozen(np.empty(0, np.int64)),
        _frozen(np.arange(public_size)),
        _frozen(np.empty(0, np.int64)),
        num_clients,
        {"train": Holdings(_frozen(offsets), None), "val": none, "test": none},
    )


def _check(
    held: Sequence[Indices], num_samples: int, num_clients: int, partition: PartitionPlugin[Any]
) -> None:
    name = name_of(partition)
    if len(held) != num_clients:
        raise InvariantError(f"partition {name} served {len(held)} clients of {num_clients}")
    every = np.concatenate(held)
    if len(every) and not 0 <= every.min() <= every.max() < num_samples:
        raise InvariantError(f"partition {name} gave away samples that do not exist")
    if len(every) and np.bincount(every).max() > 1:
        raise InvariantError(f"partition {name} gave a sample away twice")


def _holdings(parts: Sequence[Indices]) -> Holdings:
    offsets = np.zeros(len(parts) + 1, np.int64)
    np.cumsum([len(part) for part in parts], out=offsets[1:])
    return Holdings(_frozen(offsets), _frozen(np.concatenate(parts)))


def _frozen(array: Any) -> Any:
    array.flags.writeable = False
    return array


def _listed(shares: Shares) -> str:
    return ", ".join(f"{share:g}" for share in shares)
