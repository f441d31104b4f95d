"""A few classes for each client, and equal totals."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.data.partitions.classes_per_client import _whole, deal
from fedsim.errors import DataError
from fedsim.rng import Key
from tests.data.conftest import counted

counts_of = partial(counted, "classes_per_client")


@given(st.data(), st.integers(1, 12), st.integers(1, 10), st.integers(0, 2**32))
def test_cards_are_dealt_fairly(data: st.DataObject, num_clients: int, num_classes: int, seed: int) -> None:
    hand = data.draw(st.integers(1, num_classes))
    holds = deal(num_clients, num_classes, hand, Key.root(seed).numpy())
    assert (holds.sum(axis=1) == hand).all()
    holders = holds.sum(axis=0)
    assert holders.max() - holders.min() <= 1
    if num_clients * hand % num_classes == 0:
        assert (holders == num_clients * hand // num_classes).all()


@given(st.integers(1, 15), st.integers(1, 5), st.integers(0, 2**32))
def test_totals_are_equal_and_everybody_has_just_so_many_classes(
    num_clients: int, classes: int, seed: int
) -> None:
    sizes = (90, 100, 110, 60, 140)
    counts = counts_of(num_clients, *sizes, classes=classes, seed=seed)
    assert ((counts > 0).sum(axis=1) == classes).all()
    assert len(set(counts.sum(axis=1).tolist())) == 1
    assert (counts.sum(axis=0) <= sizes).all()


@pytest.mark.parametrize("seed", range(10))
def test_data_setup_1(seed: int) -> None:
    # MNIST's sizes over ten users: four holders for each class, and nearly all samples are used.
    sizes = (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949)
    counts = counts_of(10, *sizes, seed=seed)
    assert ((counts > 0).sum(axis=0) == 4).all()
    total = int(counts.sum(axis=1)[0])
    assert 6000 - 4 < total <= 6000
    # Different counts of one class: its largest part is on average over twice its smallest.
    held = [column[column > 0] for column in counts.T]
    assert np.mean([part.max() / part.min() for part in held]) > 2


def test_whole_numbers_by_hand() -> None:
    # Floors 1, 2 and 3, 0; class 0 has two left, of which both rows take one each to come to 4.
    matrix, holds = np.array([[1.6, 2.4], [3.4, 0.6]]), np.ones((2, 2), bool)
    # The zero becomes one, so rows hold 3 and 4; the first takes the sample with the larger remainder.
    assert _whole(matrix, holds, np.array([5, 3])).tolist() == [[2, 2], [3, 1]]


def test_classes_without_holders_and_without_samples_are_left_out() -> None:
    counts = counts_of(1, 30, 0, 50, 20, classes=2)
    assert np.count_nonzero(counts) == 2
    assert counts[0, 1] == 0
    assert counts.sum() in {80, 50, 70}


def test_more_classes_than_there_are() -> None:
    with pytest.raises(DataError, match="classes = 4 for each client, but the data set has 3: write 3 or"):
        counts_of(2, 9, 9, 9)


def test_a_class_with_fewer_samples_than_holders() -> None:
    with pytest.raises(DataError, match="class 1 has 2 samples for the 6 of 6 clients that hold it"):
        counts_of(6, 50, 2, classes=2)
