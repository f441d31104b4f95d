from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.errors import DataError
from tests.data.conftest import counted

counts_of, lognormal_counts = partial(counted, "two_class"), partial(counted, "two_class_lognormal")


def test_equal_shares_by_hand() -> None:
    # Class 0 is held by clients 0, 2 and 3, class 1 by 0, 1 and 3, class 2 by 1 and 2.
    assert counts_of(4, 6, 6, 6, spread=0.0).tolist() == [[2, 2, 0], [0, 2, 3], [2, 0, 3], [2, 2, 0]]


@given(st.integers(1, 25), st.integers(3, 10), st.integers(0, 2**32))
def test_everybody_holds_just_their_two_classes(num_clients: int, num_classes: int, seed: int) -> None:
    counts = counts_of(num_clients, *[30] * num_classes, seed=seed)
    for client, held in enumerate(counts):
        assert np.flatnonzero(held).tolist() == sorted([client % num_classes, (client + 1) % num_classes])


@given(st.integers(0, 2**32))
def test_holders_differ_by_at_most_a_factor_of_three(seed: int) -> None:
    held = counts_of(10, *[4000] * 5, seed=seed)
    for column in held.T:
        holders = column[column > 0]
        assert len(holders) == 4
        assert holders.max() / holders.min() <= 1.5 / 0.5 * 1.01


@given(st.integers(4, 12), st.integers(0, 2**32))
def test_as_many_samples_as_holders_give_one_to_each(num_clients: int, seed: int) -> None:
    assert (counts_of(num_clients, num_clients, num_clients, seed=seed, spread=0.99) == 1).all()


def test_one_class_is_held_once_by_each() -> None:
    assert counts_of(3, 9, spread=0.0).tolist() == [[3], [3], [3]]


def test_a_class_with_fewer_samples_than_holders_is_refused() -> None:
    with pytest.raises(DataError, match="class 0 has 3 samples for the 4 of 6 clients that hold it"):
        counts_of(6, 3, 3, 3)


def test_without_spread_by_hand() -> None:
    # Class 0 is held by clients 0, 2 and 3, class 1 by 0, 1 and 3, class 2 by 1 and 2.
    assert lognormal_counts(4, 32, 30, 21, sigma=0.0).tolist() == [
        [11, 10, 0],
        [0, 10, 11],
        [11, 0, 10],
        [10, 10, 0],
    ]


@given(st.integers(2, 12), st.integers(0, 2**32))
def test_every_holder_has_the_least_and_classes_are_used_up(num_clients: int, seed: int) -> None:
    counts = lognormal_counts(num_clients, *[200] * 4, seed=seed)
    for client, held in enumerate(counts):
        assert np.flatnonzero(held).tolist() == sorted([client % 4, (client + 1) % 4])
    assert counts[counts > 0].min() >= 10
    assert set(counts.sum(axis=0).tolist()) <= {0, 200}


def test_shares_are_log_normal() -> None:
    # Two holders of a class: the logarithm of the ratio of their shares is normal, with variance 2 sigma^2.
    counts = [lognormal_counts(10, *[5_000] * 10, seed=seed, sigma=0.5) for seed in range(30)]
    ratios = [np.log((c[j, j] - 10) / (c[(j - 1) % 10, j] - 10)) for c in counts for j in range(10)]
    assert np.mean(ratios) == pytest.approx(0, abs=0.13)
    assert np.std(ratios) == pytest.approx(np.sqrt(2) * 0.5, rel=0.12)


def test_a_class_that_cannot_give_everybody_the_least() -> None:
    with pytest.raises(
        DataError, match=r"class 1 has 19 samples for the 2 of 3 .* gets at least 10: .*lower least"
    ):
        lognormal_counts(3, 20, 19, 20)


@pytest.mark.parametrize("seed", range(5))
def test_four_classes_a_client_as_in_kt_pfls_ablations(seed: int) -> None:
    counts = lognormal_counts(10, *[6000] * 10, seed=seed, classes=4)
    for client, held in enumerate(counts):
        assert np.flatnonzero(held).tolist() == sorted((client + i) % 10 for i in range(4))
    assert ((counts > 0).sum(axis=0) == 4).all()
    assert counts.sum(axis=0).tolist() == [6000] * 10
    # Sizes differ far more than equal shares would make them.
    assert counts.sum(axis=1).max() > 2 * counts.sum(axis=1).min()


def test_all_classes_at_most() -> None:
    assert (lognormal_counts(4, 100, 100, 100, classes=3) > 0).all()
    with pytest.raises(DataError, match="classes = 4 for each client, but the data set has 3: write 3 or"):
        lognormal_counts(4, 100, 100, 100, classes=4)
