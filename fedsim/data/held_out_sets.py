"""What is taken out of the pool before it is spread: the public set and the global test set.

Either is so many samples, drawn whoever made them; or the samples of whole users, all of each, so that what
is measured or exchanged comes from people of whom no client has a sample.

Users that are held out for the test are no clients. A client has a device and links, is asked, and counts in
every mean over clients; one that may never train would have to be left out of each of these, and an algorithm
has nothing personal to give to somebody who has not taken part. What new users see is the global model, and
that is what the global test set measures.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedsim.data.base import Indices
from fedsim.errors import DataError
from fedsim.rng import Key


@dataclass(frozen=True, slots=True)
class HoldOut:
    """What to hold out; each share in ``[0, 1)``.

    Attributes:
        public_size: Samples of the public set.
        public_users: Instead, share of the users, those of the test set apart, whose samples it is.
        test_share: Part of all samples that is the global test set.
        test_users: Instead, share of all users whose samples it is.

    Raises:
        DataError: A number is out of its range, or a set is asked for in both ways.
    """

    public_size: int = 0
    public_users: float = 0.0
    test_share: float = 0.0
    test_users: float = 0.0

    def __post_init__(self) -> None:
        if self.public_size < 0 or not 0 <= self.test_share < 1:
            raise DataError(
                f"public_size = {self.public_size} and global_test_share = {self.test_share:g}: "
                "the first is at least 0, the second from 0 to below 1"
            )
        if not (0 <= self.public_users < 1 and 0 <= self.test_users < 1):
            raise DataError(
                f"public_users = {self.public_users:g} and global_test_users = {self.test_users:g}: "
                "both are shares of users, from 0 to below 1"
            )
        if self.public_size and self.public_users:
            raise DataError("the public set is so many samples or whole users: give one of the two")
        if self.test_share and self.test_users:
            raise DataError("the global test set is a share of samples or of users: give one of the two")

    @property
    def takes_users(self) -> bool:
        """Whether anything is whole users."""
        return self.public_users > 0 or self.test_users > 0


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """Positions of samples, none in two of them: the two sets in an order drawn, the rest ascending."""

    public: Indices
    test: Indices
    rest: Indices


def hold_out(
    total: int,
    users: Indices | None,
    wanted: HoldOut,
    num_clients: int,
    key: Key,
    *,
    few: str = "num_clients",
) -> Drawn:
    """Return who of ``total`` samples is in which set, and what is left for the clients.

    Args:
        total: How many samples there are.
        users: int64 (total,), who made each; None where nobody knows.
        wanted: What to hold out.
        num_clients: K; at least so many samples have to be left.
        key: Decides the draw.
        few: The setting to change where there are fewer samples than clients from the start.

    Raises:
        DataError: Too little would be left, or whole users are asked for and there are none.
    """
    generator = key.numpy()
    own = np.arange(total)
    public, test = own[:0], own[:0]
    if wanted.takes_users:
        public, test, own = _whole_users(users, wanted, generator)
    num_public = wanted.public_size or len(public)
    num_tested = math.floor(wanted.test_share * total + 0.5) or len(test)
    kept = total - num_public - num_tested
    if kept < num_clients:
        raise DataError(
            f"of {total} samples, {num_public} are for the public set and {num_tested} for the global test "
            f"set, which leaves {max(kept, 0)} for {num_clients} clients: "
            "hold out fewer, use fewer clients, or more samples",
            setting=_to_blame(wanted, num_public, num_tested) if total >= num_clients else few,
        )
    order = own[generator.permutation(len(own))]
    more_public, more_tested = num_public - len(public), num_tested - len(test)
    return Drawn(
        np.concatenate([public, order[:more_public]]),
        np.concatenate([test, order[more_public : more_public + more_tested]]),
        np.sort(order[more_public + more_tested :]),
    )


def _whole_users(
    users: Indices | None, wanted: HoldOut, generator: np.random.Generator
) -> tuple[Indices, Indices, Indices]:
    """Return the samples of the public set's users, of the test's, and of the others, each shuffled."""
    setting = "public_users" if wanted.public_users else "global_test_users"
    if users is None:
        raise DataError(
            "whole users are to be held out, and this data set does not say who made which sample: use one "
            "that says so, by itself (such as writers) or through a setting users (such as files); or hold "
            "out samples",
            setting=setting,
        )
    names = generator.permutation(np.unique(users))
    num_tested = _at_least_one(wanted.test_users, len(names))
    num_public = _at_least_one(wanted.public_users, len(names) - num_tested)
    if num_tested + num_public >= len(names):
        raise DataError(
            f"of {len(names)} users, {num_tested} are for the global test set and {num_public} for the "
            "public set, which leaves nobody to train: hold out fewer, or use a data set of more users",
            setting=setting,
        )
    samples = generator.permutation(len(users))
    tested = np.isin(users[samples], names[:num_tested])
    public = np.isin(users[samples], names[num_tested : num_tested + num_public])
    return samples[public], samples[tested], samples[~(tested | public)]


def _at_least_one(share: float, num: int) -> int:
    return max(math.floor(share * num + 0.5), 1) if share else 0


def _to_blame(wanted: HoldOut, num_public: int, num_tested: int) -> str:
    """Return the parameter of ``federate`` that takes most."""
    if num_public >= num_tested:
        return "public_users" if wanted.public_users else "public_size"
    return "global_test_users" if wanted.test_users else "global_test_share"
