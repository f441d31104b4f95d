"""Data sets of counts only."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fedsim.data.base import Counts, LoadContext
from fedsim.data.sizes import Lognormal, Sizes, SizesConfig, Uniform
from fedsim.rng import Key
from fedsim.task import Task


def draw(samples: Any, num_clients: int = 1000, seed: int = 0) -> Counts:
    dataset = Sizes(SizesConfig(samples=samples)).load(LoadContext(None, num_clients, Key.root(seed)))
    assert dataset.sizes is not None
    assert len(dataset.sizes) == num_clients
    return dataset.sizes


def test_a_number_is_the_size_of_every_client() -> None:
    assert draw(7, num_clients=3).tolist() == [7, 7, 7]


def test_uniform_reaches_both_ends_and_nothing_beyond() -> None:
    assert np.unique(draw(Uniform(distribution="uniform", low=2, high=5))).tolist() == [2, 3, 4, 5]


def test_lognormal_has_its_median_and_spread() -> None:
    sizes = draw(Lognormal(distribution="lognormal", median=1000, sigma=0.5), num_clients=20_000)
    assert np.median(sizes) == pytest.approx(1000, rel=0.02)
    assert np.log(sizes).std() == pytest.approx(0.5, rel=0.02)


def test_lognormal_gives_everybody_a_sample() -> None:
    assert draw(Lognormal(distribution="lognormal", median=1, sigma=3.0)).min() == 1


@given(st.integers(0, 5), st.integers(5, 50), st.integers(0, 2**32))
def test_equal_seeds_give_equal_counts(low: int, more: int, seed: int) -> None:
    samples = Uniform(distribution="uniform", low=low, high=low + more)
    assert np.array_equal(draw(samples, seed=seed), draw(samples, seed=seed))
    assert not np.array_equal(draw(samples, seed=seed), draw(samples, seed=seed + 1))


def test_the_task_is_as_said() -> None:
    config = SizesConfig.model_validate({"samples": 1, "input_shape": [3, 32, 32], "num_classes": 100})
    dataset = Sizes(config).load(LoadContext(None, 2, Key.root(0)))
    assert dataset.task == Task((3, 32, 32), 100)
    assert dataset.x is None


@pytest.mark.parametrize(
    ("samples", "problem"),
    [
        (-1, "greater than or equal to 0"),
        (2.5, "a whole number, or a table"),
        (True, "valid integer"),
        ({"distribution": "zipf"}, "a whole number, or a table"),
        ({"distribution": "uniform", "low": 3, "high": 2}, "low = 3 is above high = 2"),
        ({"distribution": "lognormal", "median": 0, "sigma": 1.0}, "greater than or equal to 1"),
    ],
)
def test_a_wrong_distribution_is_refused(samples: Any, problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        SizesConfig.model_validate({"samples": samples})
