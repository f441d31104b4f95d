"""Dirichlet sizes and Dirichlet labels."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.data.base import Counts
from fedsim.data.partitions import dirichlet_two_level
from fedsim.data.partitions.base import Pool
from fedsim.data.partitions.dirichlet_two_level import DirichletTwoLevel, DirichletTwoLevelConfig
from fedsim.errors import DataError
from fedsim.rng import Key


def counts_of(num_clients: int, *sizes: int, seed: int = 0, **settings: Any) -> Counts:
    labels = np.repeat(np.arange(len(sizes)), sizes)
    partition = DirichletTwoLevel(DirichletTwoLevelConfig(**settings))
    parts = partition.split(Pool(labels, len(sizes)), num_clients, Key.root(seed))
    return np.array([np.bincount(labels[part], minlength=len(sizes)) for part in parts])


@given(st.integers(1, 12), st.integers(0, 2**32), st.sampled_from([0.05, 0.5, 100.0]))
def test_all_is_given_away_and_nobody_has_less_than_the_least(
    num_clients: int, seed: int, alpha: float
) -> None:
    counts = counts_of(num_clients, 300, 0, 50, 7, seed=seed, alpha_label=alpha, min_size=3)
    assert counts.sum(axis=0).tolist() == [300, 0, 50, 7]
    assert counts.sum(axis=1).min() >= 3


def test_large_alphas_give_everybody_the_same() -> None:
    assert counts_of(4, 40, 80, alpha_label=1e6, alpha_size=1e6) == pytest.approx(
        np.tile([10, 20], (4, 1)), abs=1
    )


@pytest.mark.slow
def test_the_sizes_of_table_2_of_fedme() -> None:
    # 49,000 images over 20 clients, one example draw: SD 1,024.66, at most 5,018, at least 1,131.
    sizes = np.array([counts_of(20, *[4900] * 10, seed=seed).sum(axis=1) for seed in range(150)])
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
        counts = [counts_of(20, *[490] * 10, seed=seed, alpha_label=alpha) for seed in range(5)]
        return float(np.mean([(c.max(axis=1) / c.sum(axis=1)).mean() for c in counts]))

    assert largest(0.1) > largest(0.5) > largest(5.0) > 0.1


def test_a_request_that_never_succeeds_says_what_to_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dirichlet_two_level, "MAX_DRAWS", 3)
    with pytest.raises(
        DataError, match=r"3 draws .* smallest client had \d+, but min_size is 9. Raise alpha_size"
    ):
        counts_of(10, 50, 50, alpha_size=0.1, min_size=9)
