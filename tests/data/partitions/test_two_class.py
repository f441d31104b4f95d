"""Two neighbouring classes for each client."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.data.base import Counts
from fedsim.data.partitions.base import Pool
from fedsim.data.partitions.two_class import TwoClass, TwoClassConfig
from fedsim.errors import DataError
from fedsim.rng import Key


def counts_of(
    num_clients: int, num_classes: int, per_class: int, seed: int = 0, spread: float = 0.5
) -> Counts:
    labels = np.arange(num_classes * per_class) % num_classes
    parts = TwoClass(TwoClassConfig(spread=spread)).split(
        Pool(labels, num_classes), num_clients, Key.root(seed)
    )
    return np.array([np.bincount(labels[part], minlength=num_classes) for part in parts])


def test_equal_shares_by_hand() -> None:
    # Class 0 is held by clients 0, 2 and 3, class 1 by 0, 1 and 3, class 2 by 1 and 2.
    assert counts_of(4, 3, 6, spread=0.0).tolist() == [[2, 2, 0], [0, 2, 3], [2, 0, 3], [2, 2, 0]]


@given(st.integers(1, 25), st.integers(3, 10), st.integers(0, 2**32))
def test_everybody_holds_just_their_two_classes(num_clients: int, num_classes: int, seed: int) -> None:
    counts = counts_of(num_clients, num_classes, 30, seed)
    for client, held in enumerate(counts):
        assert np.flatnonzero(held).tolist() == sorted([client % num_classes, (client + 1) % num_classes])


@given(st.integers(0, 2**32))
def test_holders_differ_by_at_most_a_factor_of_three(seed: int) -> None:
    held = counts_of(10, 5, 4000, seed)
    for column in held.T:
        holders = column[column > 0]
        assert len(holders) == 4
        assert holders.max() / holders.min() <= 1.5 / 0.5 * 1.01


@given(st.integers(4, 12), st.integers(0, 2**32))
def test_as_many_samples_as_holders_give_one_to_each(num_clients: int, seed: int) -> None:
    labels = np.repeat([0, 1], num_clients)
    parts = TwoClass(TwoClassConfig(spread=0.99)).split(Pool(labels, 2), num_clients, Key.root(seed))
    assert [sorted(labels[part].tolist()) for part in parts] == [[0, 1]] * num_clients


def test_one_class_is_held_once_by_each() -> None:
    assert counts_of(3, 1, 9, spread=0.0).tolist() == [[3], [3], [3]]


def test_a_class_with_fewer_samples_than_holders_is_refused() -> None:
    with pytest.raises(DataError, match="class 0 has 3 samples for the 4 of 6 clients that hold it"):
        counts_of(6, 3, 3)
