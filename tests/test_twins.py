"""The twins of scenarios/papers/ keep what their papers' claims rest on (specification 6.4)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsim.runtime.parts import Parts
from fedsim.scenario import Scenario, build, load_scenario

FOLDER = Path(__file__).parents[1] / "scenarios" / "papers"
TWINS = ("ktpfl", "perfed_ckt", "persfl", "fedet", "fedme")
WITH_PUBLIC_SET = ("ktpfl", "perfed_ckt", "fedet", "fedme")
FACTOR = 50
"""Predictions are to be so many times smaller than models."""


def twin(name: str, *overrides: str) -> Scenario:
    return load_scenario(FOLDER / f"{name}_small.toml", overrides)


def mean_params(parts: Parts) -> float:
    """Return how many parameters a client's model has, on average."""
    models = [parts.fleet.model(client) for client in range(len(parts.fleet))]
    return float(np.mean([parts.architectures[label].num_params for label in models]))


@pytest.mark.parametrize("name", WITH_PUBLIC_SET)
def test_the_public_set_is_not_the_clients_own_data(name: str) -> None:
    data = twin(name).data
    assert data.public.source is not None
    assert data.public.source.name != data.name
    assert data.public.size >= 500


@pytest.mark.parametrize("name", ["ktpfl", "perfed_ckt"])
def test_predictions_are_small_beside_the_mean_model(name: str) -> None:
    """``|P| N (C + 1) << d``: KT-pFL sends each client one teacher's, PerFed-CKT those of all clusters."""
    scenario = twin(name)
    params: Any = scenario.algorithm.params
    per_round = params.public_per_round if name == "ktpfl" else scenario.data.public.size
    assert per_round >= 500
    copies = getattr(params, "clusters", 1) + 1
    parts = build(scenario)
    assert mean_params(parts) >= FACTOR * per_round * parts.data.task.num_outputs * copies


def test_the_large_model_is_large_beside_the_small_ones() -> None:
    parts = build(twin("fedet"))
    assert parts.architectures["large"].num_params >= 3.5 * mean_params(parts)


@pytest.mark.parametrize("name", TWINS)
def test_clients_have_few_samples(name: str) -> None:
    parts = build(twin(name))
    assert 20 <= np.mean(parts.data.sizes("train")) <= 300


@pytest.mark.parametrize(("name", "share"), [("fedet", 0.1), ("persfl", 1.0), ("fedme", 1.0), ("ktpfl", 1.0)])
def test_as_many_take_part_as_in_the_paper(name: str, share: float) -> None:
    parts = build(twin(name))
    clients = parts.data.num_clients
    assert (parts.clients_per_round or clients) == share * clients


def test_skews_of_several_kinds_are_among_them() -> None:
    def partition(name: str) -> Any:
        return twin(name).data.partition

    assert partition("ktpfl").name == "two_class"
    assert partition("persfl").name == "classes_per_client"
    assert partition("perfed_ckt").params.alpha == partition("fedet").params.alpha == 0.1
    assert partition("fedme").params.alpha_label == 0.5


@pytest.mark.parametrize("name", TWINS)
def test_compared_methods_do_equal_work(name: str) -> None:
    """Rounds and local training are the scenario's; the methods' own tables only say what is theirs."""
    scenario = twin(name)
    own: Any = scenario.algorithm.params
    for other in scenario.algorithms.values():
        params: Any = other.params
        for field in ("public_per_round", "distill_batch_size", "distill_epochs", "lambdas", "temperatures"):
            if hasattr(own, field) and hasattr(params, field):
                assert getattr(params, field) == getattr(own, field), f"{other.name}: {field}"
        assert getattr(params, "pretrain_epochs", 0) == 0
