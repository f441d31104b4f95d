"""Linear regression in hidden groups."""

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from fedsim.data.base import Dataset, LoadContext
from fedsim.data.synthetic_regression import SyntheticRegression, SyntheticRegressionConfig, truths
from fedsim.errors import DataError
from fedsim.params import Array
from fedsim.rng import Key
from fedsim.task import Task
from tests.conftest import there
from tests.data.conftest import held

KEY = Key.root(1)


def load(num_clients: int = 4, key: Key = KEY, **settings: Any) -> Dataset:
    config = SyntheticRegressionConfig.model_validate(settings)
    return SyntheticRegression(config).load(LoadContext(None, num_clients, key))


def solved(dataset: Dataset, client: int) -> Array:
    x, y, mine = held(dataset.x), held(dataset.y), there(dataset.users) == client
    return np.asarray(np.linalg.lstsq(x[mine].astype(np.float64), y[mine], rcond=None)[0])


def test_its_form() -> None:
    dataset = load(3, samples_per_client=5, num_features=2, input_range=2.0)
    assert dataset.task == Task((2,), 1, "regression")
    x = held(dataset.x)
    assert x.shape == (15, 2)
    assert 1 < np.abs(x).max() <= 2
    assert there(dataset.users).tolist() == [0] * 5 + [1] * 5 + [2] * 5


def test_equal_keys_give_equal_samples() -> None:
    one, same, other = load(), load(), load(key=Key.root(2))
    assert np.array_equal(held(one.x), held(same.x))
    assert np.array_equal(held(one.y), held(same.y))
    assert not np.array_equal(held(one.y), held(other.y))


def test_samples_follow_the_truths() -> None:
    config = SyntheticRegressionConfig(noise=0.0)
    expected = truths(config, 4, KEY)
    exact = load(noise=0.0)
    for client in range(4):
        assert solved(exact, client) == pytest.approx(expected[client], abs=1e-5)


def test_noise_is_what_the_truths_leave() -> None:
    dataset = load(2, noise=0.5, samples_per_client=5000)
    x, y = held(dataset.x), held(dataset.y)
    left = y - np.sum(x * truths(SyntheticRegressionConfig(), 2, KEY)[there(dataset.users)], axis=1)
    assert left.std() == pytest.approx(0.5, rel=0.03)


def test_more_samples_than_there_can_be_memory_for() -> None:
    with pytest.raises(DataError, match=r"take 800 TB, .* lower samples_per_client or num_features"):
        load(10, samples_per_client=10**9, num_features=10**4)


@pytest.mark.parametrize("name", ["input_range", "prior_range", "between", "within", "noise"])
def test_ranges_have_an_end(name: str) -> None:
    assert np.isfinite(held(load(1, KEY, **{name: 1e6}).y)).all()
    with pytest.raises(ValidationError):
        SyntheticRegressionConfig.model_validate({name: 2e6})


def test_members_of_a_group_are_alike() -> None:
    dataset = load(6, groups=2, within=0.01, between=1.0, noise=0.01)
    found = np.array([solved(dataset, client) for client in range(6)])
    distances = np.linalg.norm(found[:, None] - found[None], axis=2)
    alike = (np.arange(6)[:, None] - np.arange(6)) % 2 == 0
    assert distances[alike].max() < 0.2
    assert distances[~alike].min() > 1


def test_the_three_steps_of_a_truth() -> None:
    flat = truths(SyntheticRegressionConfig(prior_range=0.0, between=0.0, within=0.0), 3, KEY)
    assert not flat.any()
    shared = truths(SyntheticRegressionConfig(between=0.0, within=0.0), 3, KEY)
    assert (shared == shared[0]).all()
    assert 0 < np.abs(shared).max() <= 1
    config = SyntheticRegressionConfig(groups=1000, num_features=50, within=0.0, prior_range=0.0, between=0.3)
    assert truths(config, 1000, KEY).std() == pytest.approx(0.3, rel=0.02)
