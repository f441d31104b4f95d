"""Class-wise Dirichlet shares."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedsim.data.base import Counts, Indices
from fedsim.data.partitions import dirichlet_class
from fedsim.data.partitions.base import Pool
from fedsim.data.partitions.dirichlet_class import DirichletClass, DirichletClassConfig
from fedsim.errors import DataError
from fedsim.rng import Key

LABELS = np.arange(2000) % 10


def counts_of(
    config: DirichletClassConfig, num_clients: int, seed: int = 0, labels: Indices = LABELS
) -> Counts:
    parts = DirichletClass(config).split(Pool(labels, 10), num_clients, Key.root(seed))
    return np.array([np.bincount(labels[part], minlength=10) for part in parts])


def test_a_class_is_cut_at_the_running_sums_of_its_shares() -> None:
    # Sums 0.25, 0.6, 1 of ten samples: cut after 2 and after 6.
    shares = np.array([[0.25, 0.35, 0.4], [0.5, 0.5, 0.0]])
    assert dirichlet_class._counts(shares, np.array([10, 3])).tolist() == [[2, 4, 4], [1, 2, 0]]


def test_cap_gives_nothing_more_to_those_who_hold_their_even_share() -> None:
    # Eight samples, two clients, an even share of four: the first client is full after the first class.
    shares = np.array([[0.75, 0.25], [0.9, 0.1]])
    totals = np.array([6, 2])
    assert dirichlet_class._counts(shares, totals).tolist() == [[4, 2], [1, 1]]
    assert dirichlet_class._capped(shares, totals).tolist() == [[4, 2], [0, 2]]


def test_cap_when_all_with_a_share_are_full() -> None:
    shares = np.array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    assert dirichlet_class._capped(shares, np.array([4, 4])).tolist() == [[4, 0, 0], [0, 2, 2]]


@given(st.integers(0, 2**32), st.sampled_from([0.1, 0.5, 10.0]))
def test_cap_as_a_law(seed: int, alpha: float) -> None:
    counts = counts_of(DirichletClassConfig(alpha=alpha, cap=True, min_size=0), 5, seed)
    before = np.cumsum(counts, axis=1) - counts
    assert (counts[before >= len(LABELS) / 5] == 0).all()


@given(st.integers(0, 2**32), st.sampled_from([0.3, 0.5, 10.0]), st.booleans())
def test_everybody_has_min_size(seed: int, alpha: float, cap: bool) -> None:
    counts = counts_of(DirichletClassConfig(alpha=alpha, cap=cap), 10, seed)
    assert counts.sum(axis=1).min() >= 10
    assert counts.sum(axis=0).tolist() == [200] * 10


def test_a_smaller_alpha_means_more_skew_of_labels_and_of_sizes() -> None:
    def skew(alpha: float) -> tuple[float, float]:
        draws = [counts_of(DirichletClassConfig(alpha=alpha, min_size=1), 10, seed) for seed in range(20)]
        largest_class = np.mean([(c.max(axis=1) / c.sum(axis=1)).mean() for c in draws])
        return float(largest_class), float(np.mean([c.sum(axis=1).std() for c in draws]))

    strong, weak, even = skew(0.1), skew(0.5), skew(100.0)
    assert strong[0] > weak[0] > even[0]
    assert strong[1] > weak[1] > even[1]


def test_shares_follow_the_dirichlet_law() -> None:
    # A share of Dir(alpha * 1_K) has mean 1/K and variance (K - 1) / (K^2 (K alpha + 1)).
    labels = np.arange(20_000) % 10
    config = DirichletClassConfig(alpha=0.5, min_size=0)
    shares: NDArray[np.float64] = np.concatenate(
        [counts_of(config, 4, seed, labels).T / 2000 for seed in range(40)]
    )
    assert shares.mean(axis=0) == pytest.approx(0.25, abs=0.06)
    assert shares.var(axis=0) == pytest.approx(3 / (16 * 3), rel=0.25)


def test_a_request_that_never_succeeds_says_what_to_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dirichlet_class, "MAX_DRAWS", 5)
    with pytest.raises(
        DataError, match=r"5 draws .* alpha = 0.001 over 20 clients and 2000 samples.*Raise alpha"
    ):
        counts_of(DirichletClassConfig(alpha=0.001), 20)


def test_too_few_samples_for_min_size_are_refused_at_once() -> None:
    with pytest.raises(DataError, match="2000 samples cannot give at least 10 to each of 201 clients"):
        counts_of(DirichletClassConfig(), 201)


@given(st.integers(0, 2**32))
def test_everybody_has_every_class(seed: int) -> None:
    labels = np.repeat([0, 1, 3], [12, 40, 300])  # class 2 has no samples, and nobody wants one
    config = DirichletClassConfig(alpha=0.9, min_size=4, every_class=True)
    counts = counts_of(config, 6, seed, labels)
    assert counts[:, [0, 1, 3]].min() >= 1
    assert counts.sum(axis=0)[:4].tolist() == [12, 40, 0, 300]
    assert counts.sum(axis=1).min() >= 4


def test_every_class_where_it_is_all_but_impossible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dirichlet_class, "MAX_DRAWS", 5)
    labels = np.repeat([0, 1], [500, 5])
    with pytest.raises(DataError, match=r"none of .* gave each of .* one of the 5 samples of class 1: raise"):
        counts_of(DirichletClassConfig(alpha=0.5, min_size=0, every_class=True), 6, labels=labels)


def test_cap_and_every_class_contradict_each_other() -> None:
    with pytest.raises(ValueError, match="choose one of the two"):
        DirichletClassConfig(cap=True, every_class=True)
