"""One user for each client."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.data.base import Indices
from fedsim.data.partitions.base import Pool
from fedsim.data.partitions.by_user import ByUser, ByUserConfig
from fedsim.errors import DataError
from fedsim.plugins import load
from fedsim.rng import Key


def split(users: list[int], num_clients: int, seed: int = 0, min_samples: int = 1) -> list[Indices]:
    pool = Pool(np.zeros(len(users), np.int64), 1, np.array(users))
    return ByUser(ByUserConfig(min_samples=min_samples)).split(pool, num_clients, Key.root(seed))


def test_by_hand() -> None:
    # Numbers of users may have gaps; user 5 has three samples, user 2 two and user 9 one.
    parts = {tuple(part.tolist()) for part in split([5, 2, 5, 9, 2, 5], 3)}
    assert parts == {(0, 2, 5), (1, 4), (3,)}
    assert {tuple(p.tolist()) for p in split([5, 2, 5, 9, 2, 5], 2, min_samples=2)} == {(0, 2, 5), (1, 4)}


@given(st.lists(st.integers(0, 9), min_size=1, max_size=60), st.integers(1, 4), st.integers(0, 2**32))
def test_clients_are_whole_users(users: list[int], min_samples: int, seed: int) -> None:
    eligible = [user for user in set(users) if users.count(user) >= min_samples]
    for num_clients in range(1, len(eligible) + 1):
        parts = split(users, num_clients, seed, min_samples)
        owners = [{users[position] for position in part} for part in parts]
        assert all(len(some) == 1 for some in owners)
        assert len(set.union(*owners)) == num_clients
        for part, (user,) in zip(parts, owners, strict=True):
            assert len(part) == users.count(user) >= min_samples


def test_which_users_is_drawn() -> None:
    assert {split(list(range(10)), 1, seed)[0].item() for seed in range(60)} == set(range(10))


def test_too_few_users() -> None:
    with pytest.raises(
        DataError, match=r"2 of 2 users have at least a sample, but there are 3 clients: use .*num_writers"
    ):
        split([1, 1, 2], 3)
    with pytest.raises(DataError, match=r"1 of 2 users have at least 2 samples, .* or lower min_samples"):
        split([1, 1, 2], 2, min_samples=2)


def test_a_data_set_without_users() -> None:
    with pytest.raises(DataError, match=r"does not say who made which sample: use one that does") as caught:
        ByUser(ByUserConfig()).split(Pool(np.zeros(4, np.int64), 1), 2, Key.root(0))
    by_itself, by_setting = re.findall(r"\(such as (\w+)\)", str(caught.value))
    assert "users" not in load("fedsim.data", by_itself).Config.model_fields
    assert "users" in load("fedsim.data", by_setting).Config.model_fields
