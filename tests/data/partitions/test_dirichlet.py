from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.data.base import Counts
from fedsim.data.partitions import dirichlet
from fedsim.data.partitions.dirichlet import DirichletClassConfig, _serve
from fedsim.errors import DataError
from fedsim.rng import Key
from tests.data.conftest import counted

EQUAL = (200,) * 10
by_class, two_level = partial(counted, "dirichlet_class"), partial(counted, "dirichlet_two_level")


def by_client(alpha: float, num_clients: int, seed: int = 0) -> Counts:
    return counted("dirichlet_client", num_clients, *EQUAL, seed=seed, alpha=alpha)


def test_a_class_is_cut_at_the_running_sums_of_its_shares() -> None:
    # Sums 0.25, 0.6, 1 of ten samples: cut after 2 and after 6.
    shares = np.array([[0.25, 0.35, 0.4], [0.5, 0.5, 0.0]])
    assert dirichlet._counts(shares, np.array([10, 3])).tolist() == [[2, 4, 4], [1, 2, 0]]


def test_cap_gives_nothing_more_to_those_who_hold_their_even_share() -> None:
    # Eight samples, two clients, an even share of four: the first client is full after the first class.
    shares = np.array([[0.75, 0.25], [0.9, 0.1]])
    totals = np.array([6, 2])
    assert dirichlet._counts(shares, totals).tolist() == [[4, 2], [1, 1]]
    assert dirichlet._capped(shares, totals).tolist() == [[4, 2], [0, 2]]


def test_cap_when_all_with_a_share_are_full() -> None:
    shares = np.array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    assert dirichlet._capped(shares, np.array([4, 4])).tolist() == [[4, 0, 0], [0, 2, 2]]


@given(st.integers(0, 2**32), st.sampled_from([0.1, 0.5, 10.0]))
def test_cap_as_a_law(seed: int, alpha: float) -> None:
    counts = by_class(5, *EQUAL, seed=seed, alpha=alpha, cap=True, min_size=0)
    before = np.cumsum(counts, axis=1) - counts
    assert (counts[before >= sum(EQUAL) / 5] == 0).all()


@given(st.integers(0, 2**32), st.sampled_from([0.3, 0.5, 10.0]), st.booleans())
def test_everybody_has_min_size(seed: int, alpha: float, cap: bool) -> None:
    counts = by_class(10, *EQUAL, seed=seed, alpha=alpha, cap=cap)
    assert counts.sum(axis=1).min() >= 10
    assert counts.sum(axis=0).tolist() == [200] * 10


def test_shares_follow_the_dirichlet_law() -> None:
    # A share of Dir(alpha * 1_K) has mean 1/K and variance (K - 1) / (K^2 (K alpha + 1)).
    draws = [by_class(4, *[2000] * 10, seed=seed, alpha=0.5, min_size=0) for seed in range(40)]
    shares = np.concatenate([counts.T for counts in draws]) / 2000
    assert shares.mean(axis=0) == pytest.approx(0.25, abs=0.06)
    assert shares.var(axis=0) == pytest.approx(3 / (16 * 3), rel=0.25)


def test_a_request_that_never_succeeds_says_what_to_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dirichlet, "MAX_DRAWS", 5)
    with pytest.raises(
        DataError, match=r"5 draws .* alpha = 0.001 over 20 clients and 2000 samples.*Raise alpha"
    ):
        by_class(20, *EQUAL, alpha=0.001)


def test_too_few_samples_for_min_size_are_refused_at_once() -> None:
    with pytest.raises(DataError, match="2000 samples cannot give at least 10 to each of 201 clients"):
        by_class(201, *EQUAL)


@given(st.integers(0, 2**32))
def test_everybody_has_every_class(seed: int) -> None:
    # Class 2 has no samples, and nobody wants one.
    counts = by_class(6, 12, 40, 0, 300, seed=seed, alpha=0.9, min_size=4, every_class=True)
    assert counts[:, [0, 1, 3]].min() >= 1
    assert counts.sum(axis=0).tolist() == [12, 40, 0, 300]
    assert counts.sum(axis=1).min() >= 4


def test_every_class_where_it_is_all_but_impossible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dirichlet, "MAX_DRAWS", 5)
    with pytest.raises(DataError, match=r"none of .* gave each of .* one of the 5 samples of class 1: raise"):
        by_class(6, 500, 5, alpha=0.5, min_size=0, every_class=True)


def test_cap_and_every_class_contradict_each_other() -> None:
    with pytest.raises(ValueError, match="choose one of the two"):
        DirichletClassConfig(cap=True, every_class=True)


@given(st.sampled_from([1e-6, 0.1, 1.0, 1e6]), st.integers(1, 60), st.integers(0, 2**32))
def test_sizes_are_equal(alpha: float, num_clients: int, seed: int) -> None:
    sizes = by_client(alpha, num_clients, seed).sum(axis=1)
    assert sizes.max() - sizes.min() <= 1
    assert sizes.sum() == 2000


def test_a_large_alpha_gives_everybody_the_whole_mixture() -> None:
    # 20 of each class, give or take what a multinomial draw does; the last served take what the others left.
    off = np.abs(by_client(1e6, 10) - 20).mean()
    assert off < 1.5 * np.sqrt(200 * 0.1 * 0.9)


def test_a_small_alpha_gives_most_clients_one_class() -> None:
    largest = by_client(1e-6, 50).max(axis=1)
    assert (largest == 40).mean() > 0.5


def test_the_late_are_not_always_the_last() -> None:
    # Those served last take the leftovers; were they always the highest numbers, their skew would stand out.
    skew = np.mean([by_client(0.1, 20, seed).max(axis=1) for seed in range(40)], axis=0)
    assert skew[-5:].mean() == pytest.approx(skew[:5].mean(), rel=0.15)


def test_a_class_that_ran_out_is_replaced_by_the_others_wished_for() -> None:
    wish, left = np.array([0.5, 0.5, 0.0]), np.array([2, 50, 50])
    assert _serve(wish, 20, left, Key.root(0).numpy()).tolist() == [2, 18, 0]


def test_when_no_wish_is_left_the_rest_is_taken_as_it_is() -> None:
    wish, left = np.array([1.0, 0.0, 0.0]), np.array([2, 3, 0])
    assert _serve(wish, 5, left, Key.root(0).numpy()).tolist() == [2, 3, 0]


@given(st.integers(1, 12), st.integers(0, 2**32), st.sampled_from([0.05, 0.5, 100.0]))
def test_all_is_given_away_and_nobody_has_less_than_the_least(
    num_clients: int, seed: int, alpha: float
) -> None:
    counts = two_level(num_clients, 300, 0, 50, 7, seed=seed, alpha_label=alpha, min_size=3)
    assert counts.sum(axis=0).tolist() == [300, 0, 50, 7]
    assert counts.sum(axis=1).min() >= 3


def test_large_alphas_give_everybody_the_same() -> None:
    assert two_level(4, 40, 80, alpha_label=1e6, alpha_size=1e6) == pytest.approx(
        np.tile([10, 20], (4, 1)), abs=1
    )


@pytest.mark.slow
def test_the_sizes_of_table_2_of_fedme() -> None:
    # 49,000 images over 20 clients, one example draw: SD 1,024.66, at most 5,018, at least 1,131.
    sizes = np.array([two_level(20, *[4900] * 10, seed=seed).sum(axis=1) for seed in range(150)])
    deviations = sizes.std(axis=1, ddof=1)
    assert (sizes.sum(axis=1) == 49_000).all()
    # Of Dir(10 * 1_20) the variance is 19 / (20^2 * 201), so sizes have a standard deviation of 753.
    law = 49_000 * np.sqrt(19 / (400 * 201))
    assert law == pytest.approx(753.3, abs=0.1)
    assert deviations.mean() == pytest.approx(law, rel=0.05)
    # The example is an uneven one, but one that happens: about one draw in forty is as uneven.
    assert 0.0 < (deviations >= 1024.66).mean() < 0.1
    assert np.mean(sizes.max(axis=1)) == pytest.approx(5018, rel=0.25)
    assert np.mean(sizes.min(axis=1)) == pytest.approx(1131, rel=0.25)


def test_labels_are_as_skewed_as_alpha_says() -> None:
    def largest(alpha: float) -> float:
        counts = [two_level(20, *[490] * 10, seed=seed, alpha_label=alpha) for seed in range(5)]
        return float(np.mean([(c.max(axis=1) / c.sum(axis=1)).mean() for c in counts]))

    assert largest(0.1) > largest(0.5) > largest(5.0) > 0.1


def test_sizes_that_are_never_even_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dirichlet, "TWO_LEVEL_MAX_DRAWS", 3)
    with pytest.raises(
        DataError, match=r"3 draws .* smallest client had \d+, but min_size is 9. Raise alpha_size"
    ):
        two_level(10, 50, 50, alpha_size=0.1, min_size=9)
