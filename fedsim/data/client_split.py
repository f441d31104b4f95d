"""Splitting one client's samples into train, validation and test (specification 6).

The parts' sizes are the wanted shares of all the client's samples, rounded; a client with at least as many
samples as parts has none of them empty. One with fewer fills train, then test, then validation: without
test it could not be judged, without validation it falls back on its training loss (rule E11).

Within these sizes, each class with at least as many samples as there are parts is split in proportion, and
a part whose share of it is a whole sample gets one; rarer classes are split together. What rounding gives
or takes in one class is made up for in the next, and by the last of them the sizes are exact.

The samples of a regression are one class.
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
"""Shares of train, validation and test for everybody, or several, of which each client draws one."""

SPLITS: tuple[Split, ...] = get_args(Split)

# Train, test, val as positions in (train, val, test): who comes first when samples are few or shares tie.
_PRIORITY = (0, 2, 1)


def shares_fault(shares: Shares) -> str:
    """Say what is wrong with shares of train, validation and test; empty where nothing is."""
    if not all(math.isfinite(share) and 0 <= share <= 1 for share in shares):
        return f"shares of train, val and test are each from 0 to 1, these are {_listed(shares)}"
    if abs(sum(shares) - 1) > 1e-9:
        return f"shares of train, val and test sum to 1, {_listed(shares)} sum to {sum(shares):g}"
    if shares[0] == 0:
        return f"the share of train is above 0, of {_listed(shares)} nothing is left to train on"
    return ""


def choices_of(shares: AnyShares) -> tuple[Shares, ...]:
    """Return all shares of train, validation and test that a client may have."""
    return tuple(one for one in shares if isinstance(one, tuple)) or (cast(Shares, shares),)


def split_client(labels: Labels, shares: Shares) -> tuple[Indices, Indices, Indices]:
    """Return the positions in ``labels`` that are for train, validation and test, each ascending.

    Args:
        labels: Labels of one client's samples, shuffled beforehand; float32 for a regression.
        shares: Shares of train, validation and test, summing to one; a part of share 0 gets nothing.
    """
    total = len(labels)
    parts = [part for part in _PRIORITY if shares[part] > 0]
    non_empty = np.arange(len(parts)) < total
    sizes = _round(total * np.array([shares[part] for part in parts]), non_empty.astype(np.int64), total)
    part_of = np.empty(total, np.int64)
    carry = np.zeros(len(parts))
    for positions in _groups(labels, len(parts)):
        quota = len(positions) * sizes / total
        # The carry stays above -1, so what is at least one here is above zero with it, and never taken back.
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
    """Return whole numbers near ``quota`` and from ``least`` up, of sum ``total``; the first wins ties."""
    counts: Counts = np.maximum(np.floor(quota + 1e-9).astype(np.int64), least)
    while (missing := total - int(counts.sum())) != 0:
        # Remainders that are equal on paper differ in the last bit; a tie has to stay a tie.
        lacking = (quota - counts).round(9)
        if missing > 0:
            counts[np.argmax(lacking)] += 1
        else:
            counts[np.argmin(np.where(counts > least, lacking, np.inf))] -= 1
    return counts


def _listed(shares: Shares) -> str:
    return ", ".join(f"{share:g}" for share in shares)
