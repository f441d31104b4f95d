"""Client-wise Dirichlet label distributions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.data.base import Counts
from fedsim.data.partitions.base import Pool
from fedsim.data.partitions.dirichlet_client import DirichletClient, DirichletClientConfig, _serve
from fedsim.rng import Key

LABELS = np.arange(2000) % 10


def counts_of(alpha: float, num_clients: int, seed: int = 0) -> Counts:
    partition = DirichletClient(DirichletClientConfig(alpha=alpha))
    parts = partition.split(Pool(LABELS, 10), num_clients, Key.root(seed))
    return np.array([np.bincount(LABELS[part], minlength=10) for part in parts])


@given(st.sampled_from([1e-6, 0.1, 1.0, 1e6]), st.integers(1, 60), st.integers(0, 2**32))
def test_sizes_are_equal(alpha: float, num_clients: int, seed: int) -> None:
    sizes = counts_of(alpha, num_clients, seed).sum(axis=1)
    assert sizes.max() - sizes.min() <= 1
    assert sizes.sum() == 2000


def test_a_large_alpha_gives_everybody_the_whole_mixture() -> None:
    # 20 of each class, give or take what a multinomial draw does; the last served take what the others left.
    off = np.abs(counts_of(1e6, 10) - 20).mean()
    assert off < 1.5 * np.sqrt(200 * 0.1 * 0.9)


def test_a_small_alpha_gives_most_clients_one_class() -> None:
    largest = counts_of(1e-6, 50).max(axis=1)
    assert (largest == 40).mean() > 0.5


def test_skew_grows_as_alpha_falls() -> None:
    largest = [
        np.mean([counts_of(alpha, 20, seed).max(axis=1).mean() for seed in range(5)])
        for alpha in (0.1, 1, 10)
    ]
    assert largest[0] > largest[1] > largest[2]


def test_the_late_are_not_always_the_last() -> None:
    # Those served last take the leftovers; were they always the highest numbers, their skew would stand out.
    skew = np.mean([counts_of(0.1, 20, seed).max(axis=1) for seed in range(40)], axis=0)
    assert skew[-5:].mean() == pytest.approx(skew[:5].mean(), rel=0.15)


def test_a_class_that_ran_out_is_replaced_by_the_others_wished_for() -> None:
    wish, left = np.array([0.5, 0.5, 0.0]), np.array([2, 50, 50])
    assert _serve(wish, 20, left, Key.root(0).numpy()).tolist() == [2, 18, 0]


def test_when_no_wish_is_left_the_rest_is_taken_as_it_is() -> None:
    wish, left = np.array([1.0, 0.0, 0.0]), np.array([2, 3, 0])
    assert _serve(wish, 5, left, Key.root(0).numpy()).tolist() == [2, 3, 0]
