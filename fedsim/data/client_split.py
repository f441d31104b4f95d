"""Splitting one client's samples into train, validation and test (specification 6).

The size of each part is its share of the client's samples, rounded. A client with at least as many samples
as parts gets at least one sample in each part. A client with fewer samples fills train first, then test, then
validation: it cannot be evaluated without test samples, but without validation samples its training loss is
used instead (rule E11).

Within these sizes, each class with at least as many samples as there are parts is split in proportion. A part
whose share of a class is at least one sample gets at least one. Rarer classes are split together. Rounding
errors are carried from one class to the next, so that the sizes are exact in the end.

The samples of a regression are treated as one class.
"""

import math
from typing import Literal, TypeAlias, cast, get_args

import numpy as np
from numpy.typing import NDArray

from fedsim.data.base import Counts, Indices, Labels
from fedsim.ranges import Share

Split: TypeAlias = Literal["train", "val", "test"]
Shares: TypeAlias = tuple[Share, Share, Share]
AnyShares: TypeAlias = Shares | tuple[Shares, ...]
"""Shares of train, validation and test for all clients, or several triples, of which each draws one."""

SPLITS: tuple[Split, ...] = get_args(Split)

# Train, test, val as positions in (train, val, test): the order of parts if samples are few or shares tie.
_PRIORITY = (0, 2, 1)


def shares_fault(shares: Shares) -> str:
    """Return what is wrong with shares of train, validation and test; an empty string if nothing is."""
    if not all(math.isfinite(share) and 0 <= share <= 1 for share in shares):
        return f"shares of train, val and test must each be from 0 to 1, not {_listed(shares)}"
    if abs(sum(shares) - 1) > 1e-9:
        return f"shares of train, val and test must sum to 1, but {_listed(shares)} sum to {sum(shares):g}"
    if shares[0] == 0:
        return f"the share of train must be above 0: {_listed(shares)} leave nothing to train on"
    return ""


def choices_of(shares: AnyShares) -> tuple[Shares, ...]:
    """Return all shares of train, validation and test that a client may have."""
    return tuple(triple for triple in shares if isinstance(triple, tuple)) or (cast(Shares, shares),)


def split_client(labels: Labels, shares: Shares) -> tuple[Indices, Indices, Indices]:
    """Return the positions of the train, validation and test samples, each ascending.

    ``labels`` are those of one client's samples, shuffled beforehand; float32 for a regression.
    """
    total = len(labels)
    parts = [part for part in _PRIORITY if shares[part] > 0]
    non_empty = np.arange(len(parts)) < total
    sizes = _round(total * np.array([shares[part] for part in parts]), non_empty.astype(np.int64), total)
    part_of = np.empty(total, np.int64)
    carry = np.zeros(len(parts))
    for positions in _groups(labels, len(parts)):
        quota = len(positions) * sizes / total
        # The carry is always above -1. So with it a quota of at least one is still above zero, and giving it
        # a sample only rounds it up.
        counts = _round(quota + carry, (quota > 1 - 1e-9).astype(np.int64), len(positions))
        carry += quota - counts
        part_of[positions] = np.repeat(parts, counts)
    train, val, test = (np.flatnonzero(part_of == part) for part in range(3))
    return train, val, test


def _groups(labels: Labels, num_parts: int) -> list[Indices]:
    """Return the positions of each class that is large enough, smallest first, then all others together."""
    if not len(labels):
        return []
    if labels.dtype.kind == "f":
        return [np.arange(len(labels))]
    order = np.argsort(labels, kind="stable")
    starts = np.flatnonzero(np.diff(labels[order], prepend=-1))
    classes = np.split(order, starts[1:])
    rare = [positions for positions in classes if len(positions) < num_parts]
    groups = sorted((positions for positions in classes if len(positions) >= num_parts), key=len)
    return [*groups, np.sort(np.concatenate(rare))] if rare else groups


def _round(quota: NDArray[np.float64], least: Counts, total: int) -> Counts:
    """Return whole numbers near ``quota``, at least ``least``, of sum ``total``; ties go to the first."""
    counts: Counts = np.maximum(np.floor(quota + 1e-9).astype(np.int64), least)
    while (missing := total - int(counts.sum())) != 0:
        # Rounded, since remainders that should be equal can differ in the last bit, but must tie.
        lacking = (quota - counts).round(9)
        if missing > 0:
            counts[np.argmax(lacking)] += 1
        else:
            counts[np.argmin(np.where(counts > least, lacking, np.inf))] -= 1
    return counts


def _listed(shares: Shares) -> str:
    return ", ".join(f"{share:g}" for share in shares)
