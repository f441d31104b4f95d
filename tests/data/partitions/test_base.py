"""The arithmetic that partitions share."""

import numpy as np
import pytest

from fedsim.data.partitions.base import apportion_to_all, by_class, cut, require_samples, scaled
from fedsim.errors import DataError
from fedsim.rng import Key


def test_apportion_to_all_takes_from_the_largest() -> None:
    # Alone 0, 0, 1, 9: the two that get nothing take one each from the last.
    assert apportion_to_all(10, np.array([0.0, 0.01, 0.1, 0.89])).tolist() == [1, 1, 1, 7]
    assert apportion_to_all(3, np.array([0.0, 0.0, 1.0])).tolist() == [1, 1, 1]


def test_scaled_by_hand() -> None:
    # Rows to 2 and 4 give [[1, 1], [1, 3]]; columns to 3 and 2 then give the matrix below.
    matrix = scaled(np.array([[1.0, 1.0], [1.0, 3.0]]), np.array([2, 4]), np.array([3, 2]), 1)
    assert matrix.tolist() == [[1.5, 0.5], [1.5, 1.5]]


def test_scaled_often_fits_rows_and_columns_and_leaves_zeros() -> None:
    matrix = scaled(np.array([[1.0, 2.0, 0.0], [3.0, 1.0, 0.0]]), np.array([4, 6]), np.array([7, 3, 0]), 50)
    assert matrix.sum(axis=1) == pytest.approx([4, 6])
    assert matrix.sum(axis=0) == pytest.approx([7, 3, 0])
    # What scaling cannot change: the ratio of the products of the diagonals.
    assert matrix[0, 0] * matrix[1, 1] / (matrix[0, 1] * matrix[1, 0]) == pytest.approx(1 / 6)


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
