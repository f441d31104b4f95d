"""Taking the public set and the global test set out of the pool before it is spread.

Each set is either a number of samples, drawn regardless of who made them, or all samples of some users. In
the second case no client has samples of these users.

Users that are held out for the test do not become clients. A client has a device and links, takes part, and
counts in every mean over clients, so one that never trains would need an exception in each of these places.
An algorithm also has no personal model for a user who has not taken part. New users get the global model,
and the global test set measures that model.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fedsim.data.base import Indices
from fedsim.data.spreading_settings import Spreading
from fedsim.errors import DataError
from fedsim.rng import Key


class Drawn(NamedTuple):
    """Disjoint positions of samples: the two sets in a random order, the rest ascending."""

    public: Indices
    test: Indices
    rest: Indices


def hold_out(total: int, users: Indices | None, spreading: Spreading, has_test: bool, key: Key) -> Drawn:
    """Return the positions of the samples of both sets, and of those that are left for the clients."""
    if has_test and spreading.global_test_users:
        raise DataError(
            "this data set has a test part of its own, which is the global test set: leave this setting out",
            setting="global_test_users",
        )
    generator = key.numpy()
    own = np.arange(total)
    public, test = own[:0], own[:0]
    if spreading.holds_out_users:
        public, test, own = _whole_users(users, spreading, generator)
    num_public, num_tested = len(public), len(test)
    if spreading.public_source is None:
        num_public += spreading.public_size
    if not has_test:
        num_tested += math.floor(spreading.global_test_share * total + 0.5)
    kept = total - num_public - num_tested
    if kept < spreading.num_clients:
        raise DataError(
            f"of {total} samples, {num_public} are for the public set and {num_tested} for the global test "
            f"set, which leaves {max(kept, 0)} for {spreading.num_clients} clients: "
            "hold out fewer, use fewer clients, or more samples",
            setting=_to_blame(total, spreading, num_public, num_tested),
        )
    order = own[generator.permutation(len(own))]
    more_public, more_tested = num_public - len(public), num_tested - len(test)
    return Drawn(
        np.concatenate([public, order[:more_public]]),
        np.concatenate([test, order[more_public : more_public + more_tested]]),
        np.sort(order[more_public + more_tested :]),
    )


def _whole_users(users: Indices | None, spreading: Spreading, generator: np.random.Generator) -> Drawn:
    """Return the samples of the public set's users, of the test's, and of the others, each shuffled."""
    setting = "public_users" if spreading.public_users else "global_test_users"
    if users is None:
        raise DataError(
            "whole users cannot be held out, because this data set does not say who made which sample: use "
            "one that does (such as writers), give users where there is such a setting (such as files), or "
            "hold out samples",
            setting=setting,
        )
    names = generator.permutation(np.unique(users))
    num_tested = _at_least_one(spreading.global_test_users, len(names))
    num_public = _at_least_one(spreading.public_users, len(names) - num_tested)
    if num_tested + num_public >= len(names):
        raise DataError(
            f"of {len(names)} users, {num_tested} are for the global test set and {num_public} for the "
            "public set, which leaves nobody to train: hold out fewer, or use a data set with more users",
            setting=setting,
        )
    samples = generator.permutation(len(users))
    tested = np.isin(users[samples], names[:num_tested])
    public = np.isin(users[samples], names[num_tested : num_tested + num_public])
    return Drawn(samples[public], samples[tested], samples[~(tested | public)])


def _at_least_one(share: float, num: int) -> int:
    return max(math.floor(share * num + 0.5), 1) if share else 0


def _to_blame(total: int, spreading: Spreading, num_public: int, num_tested: int) -> str:
    """Return the setting to change when too few samples are left."""
    if total < spreading.num_clients:
        return "limit" if spreading.limit == total else "num_clients"
    if num_public >= num_tested:
        return "public_users" if spreading.public_users else "public_size"
    return "global_test_users" if spreading.global_test_users else "global_test_share"
