"""The arithmetic that partitions share."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.data.partitions.base import apportion, by_class, cut, require_samples
from fedsim.errors import DataError
from fedsim.rng import Key


def test_apportion_by_largest_remainders() -> None:
    # 10 * (1, 2, 4) / 7 is 1.43, 2.86, 5.71: the missing two go to the second and the third.
    assert apportion(10, np.array([1.0, 2.0, 4.0])).tolist() == [1, 3, 6]


def test_the_first_of_equal_remainders_is_rounded_up() -> None:
    assert apportion(5, np.ones(3)).tolist() == [2, 2, 1]


@given(
    st.integers(0, 1000), st.lists(st.floats(0, 1e3), min_size=1, max_size=20).filter(lambda w: sum(w) > 1e-6)
)
def test_apportion_is_within_one_and_complete(total: int, weights: list[float]) -> None:
    exact = total * np.array(weights) / sum(weights)
    counts = apportion(total, np.array(weights))
    assert counts.sum() == total
    assert (np.abs(counts - exact) < 1 + 1e-9).all()


def test_by_class_knows_classes_without_samples() -> None:
    pools = by_class(np.array([2, 0, 2, 0, 0]), 4, Key.root(0).numpy())
    assert [sorted(pool.tolist()) for pool in pools] == [[1, 3, 4], [], [0, 2], []]


def test_cut_deals_in_order() -> None:
    pools = [np.array([7, 5, 6]), np.array([1, 2])]
    assert [part.tolist() for part in cut(pools, np.array([[1, 0], [2, 1], [0, 1]]))] == [[7], [5, 6, 1], [2]]


def test_samples_that_do_not_suffice() -> None:
    require_samples(20, 2, per_client=10)
    with pytest.raises(DataError, match=r"19 samples cannot give at least 10 to each of 2 .* lower min_size"):
        require_samples(19, 2, per_client=10)
