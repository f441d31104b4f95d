"""What is taken out of the pool: samples, or whole users."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.data.base import Dataset, Indices
from fedsim.data.federated import FederatedData, federate
from fedsim.data.held_out_sets import Drawn, hold_out
from fedsim.data.partitions.by_user import ByUser, ByUserConfig
from fedsim.data.spreading_settings import Spreading
from fedsim.errors import DataError
from fedsim.rng import Key
from fedsim.task import Task

KEY = Key.root(0)


def draw(users: Any, *, key: Key = KEY, **wanted: Any) -> Drawn:
    users = np.array(users, np.int64)
    spreading = Spreading(num_clients=1, shares=(1.0, 0.0, 0.0), **wanted)
    return hold_out(len(users), users, spreading, False, key)


def test_whole_users_by_hand() -> None:
    # Ten users with one to ten samples: two for the test, a quarter of the other eight for the public set.
    users = np.repeat(np.arange(10), np.arange(1, 11))
    drawn = draw(users, global_test_users=0.2, public_users=0.25)
    groups = [set(users[part].tolist()) for part in (drawn.test, drawn.public, drawn.rest)]
    assert [len(group) for group in groups] == [2, 2, 6]
    assert set.union(*groups) == set(range(10))
    assert sorted(np.concatenate([drawn.test, drawn.public, drawn.rest]).tolist()) == list(range(55))
    assert drawn.rest.tolist() == sorted(drawn.rest.tolist())


def test_a_share_of_users_is_at_least_one_of_them() -> None:
    drawn = draw([3, 3, 5, 5, 9], public_users=0.01)
    assert len({(3, 3, 5, 5, 9)[at] for at in drawn.public}) == 1
    assert not len(drawn.test)


def test_users_for_the_test_and_samples_for_the_public_set() -> None:
    users = np.repeat(np.arange(5), 10)
    drawn = draw(users, global_test_users=0.2, public_size=15)
    assert [len(part) for part in (drawn.test, drawn.public, drawn.rest)] == [10, 15, 25]
    (tested,) = set(users[drawn.test].tolist())
    assert tested not in set(users[drawn.public].tolist()) | set(users[drawn.rest].tolist())
    # And the other way round; a share of samples is one of all of them.
    drawn = draw(users, public_users=0.4, global_test_share=0.1)
    assert [len(part) for part in (drawn.test, drawn.public, drawn.rest)] == [5, 20, 25]
    assert len(set(users[drawn.public].tolist())) == 2


def test_samples_are_in_no_order_and_the_key_decides() -> None:
    users = np.repeat(np.arange(4), 50)
    one, again, other = (
        draw(users, key=Key.root(seed), public_users=0.5, global_test_users=0.25) for seed in (0, 0, 1)
    )
    assert one.public.tolist() == again.public.tolist() != other.public.tolist()
    assert one.public.tolist() != sorted(one.public.tolist())
    assert one.test.tolist() != sorted(one.test.tolist())


@given(
    st.lists(st.integers(0, 12), min_size=4, max_size=60),
    st.sampled_from([0.0, 0.1, 0.5]),
    st.sampled_from([0.0, 0.2, 0.4]),
    st.integers(0, 2**32),
)
def test_nobody_is_in_two_places(users: list[int], public: float, test: float, seed: int) -> None:
    people, names = np.array(users), set(users)
    try:
        drawn = draw(users, key=Key.root(seed), public_users=public, global_test_users=test)
    except DataError:
        assert len(names) < 5
        return
    parts = (drawn.public, drawn.test, drawn.rest)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(users)))
    assert len(drawn.rest)
    if public and test:
        assert sum(len(set(people[part].tolist())) for part in parts) == len(names)


def dataset(users: Indices | None, tested: bool = False) -> Dataset:
    size = 40
    x, y = np.arange(size, dtype=np.float32)[:, None], np.arange(size) % 2
    test_x, test_y = (x[:4].copy(), y[:4].copy()) if tested else (None, None)
    return Dataset(Task((1,), 2), x, y, test_x, test_y, users=users)


PEOPLE = np.arange(40) % 8


def spread(held: Dataset, **settings: Any) -> FederatedData:
    wanted: dict[str, Any] = {"num_clients": 2, "shares": (0.5, 0.25, 0.25)} | settings
    return federate(held, ByUser(ByUserConfig()), Spreading(**wanted), KEY)


@pytest.mark.parametrize(
    ("held", "settings", "problem", "blamed"),
    [
        (dataset(None), {"public_users": 0.1}, "does not say who made which sample", "public_users"),
        (dataset(None), {"global_test_users": 0.1}, r"give users .*\(such as files\)", "global_test_users"),
        (
            dataset(PEOPLE.copy()),
            {"public_users": 0.9, "global_test_users": 0.9},
            "of 8 users, 7 are for the global test set and 1 for the public set, which leaves nobody",
            "public_users",
        ),
        (dataset(PEOPLE.copy()), {"global_test_users": 0.99}, "leaves nobody to train", "global_test_users"),
        (dataset(PEOPLE.copy()), {"public_users": 0.9, "num_clients": 6}, "35 are for the", "public_users"),
        (
            dataset(PEOPLE.copy()),
            {"global_test_users": 0.85, "num_clients": 6},
            "35 for the global test set, which leaves 5 for 6 clients",
            "global_test_users",
        ),
        (dataset(PEOPLE.copy()), {"public_users": 0.5, "num_clients": 6}, "use fewer clients", "partition"),
        (
            dataset(PEOPLE.copy(), tested=True),
            {"global_test_users": 0.1},
            "has a test part of its own",
            "global_test_users",
        ),
    ],
)
def test_requests_that_cannot_be_met_teach(
    held: Dataset, settings: dict[str, Any], problem: str, blamed: str
) -> None:
    with pytest.raises(DataError, match=problem) as caught:
        spread(held, **settings)
    assert caught.value.setting == blamed


def test_a_data_set_with_a_test_part_can_still_give_users_to_the_public_set() -> None:
    data = spread(dataset(PEOPLE.copy(), tested=True), public_users=0.25)
    assert data.global_test.tolist() == [40, 41, 42, 43]
    assert len(data.public) == 10
    assert data.public_labelled
