"""Every class for every client, in uneven parts."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.errors import DataError
from tests.data.conftest import counted

counts_of = partial(counted, "all_uneven")


def test_all_of_it_even() -> None:
    assert counts_of(3, 7, 3, even=1.0).tolist() == [[3, 1], [2, 1], [2, 1]]


@given(st.integers(1, 20), st.integers(0, 2**32))
def test_everybody_has_every_class_there_is(num_clients: int, seed: int) -> None:
    counts = counts_of(num_clients, 20, 0, 300, seed=seed, even=0.0)
    assert counts[:, [0, 2]].min() >= 1
    assert counts.sum(axis=0).tolist() == [20, 0, 300]


def test_shares_follow_their_law() -> None:
    # 0.1 / K + 0.9 q with q ~ Dir(1): mean 1 / K, variance 0.81 (K - 1) / (K^2 (K + 1)).
    shares = np.concatenate([counts_of(4, *[4000] * 10, seed=seed).T for seed in range(60)]) / 4000
    assert shares.min() >= 0.1 / 4 - 1 / 4000
    assert shares.mean(axis=0) == pytest.approx(0.25, abs=0.03)
    assert shares.var() == pytest.approx(0.81 * 3 / (16 * 5), rel=0.1)


def test_a_class_with_fewer_samples_than_clients_is_refused() -> None:
    with pytest.raises(DataError, match="class 1 has 4 samples for the 5 of 5 clients that hold it"):
        counts_of(5, 20, 4)
