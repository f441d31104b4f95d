"""TopK-pFD: the specification's sanity checks (5.E.4); what it shares with KT-pFL is tested there."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from fedsim.algorithms.common.codistillation import ServerState
from fedsim.params import Array, Model
from fedsim.rng import Key
from tests.algorithms.stand_ins import Server


def _weights(algorithm: Any, num_clients: int) -> Array:
    scores = np.exp(Key.root(3).numpy().standard_normal((num_clients, 20, 5)))
    values = (scores / scores.sum(axis=2, keepdims=True)).astype(np.float32)
    given = np.ones((num_clients, 20), np.bool_)
    weights: Array = asyncio.run(algorithm.weights(Server(), ServerState(values=values, given=given)))
    return weights


def _distance(left: dict[int, Model], right: dict[int, Model]) -> float:
    return max(
        float(np.abs(array - right[client].params[name]).max())
        for client, model in left.items()
        for name, array in model.params.items()
    )


def test_five_neighbours_by_default(world: Any) -> None:
    weights = _weights(world.algorithm("topk_pfd"), 9)
    assert ((weights > 0).sum(axis=1) == 5).all()
    assert set(weights.ravel().tolist()) == {0.0, 0.2}
    assert (np.diagonal(weights) > 0).all()


@pytest.mark.parametrize(("num_clients", "expected"), [(1, 1), (2, 1), (3, 2), (8, 4), (9, 5)])
def test_half_of_those_who_answered(num_clients: int, expected: int, world: Any) -> None:
    weights = _weights(world.algorithm("topk_pfd", half=True), num_clients)
    assert ((weights > 0).sum(axis=1) == expected).all()
    np.testing.assert_allclose(weights.sum(axis=1), 1)


def test_all_neighbours_are_codistillation_to_the_mean(world: Any) -> None:
    everyone = world.personal(world.algorithm("topk_pfd", neighbours=4))
    more = world.personal(world.algorithm("topk_pfd"))
    mean = world.personal(world.algorithm("ktpfl", c_lr=0.0))
    assert _distance(everyone, mean) < 1e-5
    assert _distance(everyone, more) == 0.0


@pytest.mark.parametrize("order", ["train_first", "distill_first"])
def test_one_neighbour_is_local(order: str, world: Any) -> None:
    # The teacher is the student itself: the gradient is zero but for rounding.
    alone = world.personal(world.algorithm("topk_pfd", neighbours=1, order=order))
    assert _distance(alone, world.personal(world.algorithm("local"))) < 1e-5
    assert _distance(alone, world.personal(world.algorithm("topk_pfd", neighbours=2, order=order))) > 1e-3


def test_neighbours_are_among_those_who_answered(world: Any) -> None:
    two = world.personal(world.algorithm("topk_pfd"), clients_per_round=2)
    mean = world.personal(world.algorithm("ktpfl", c_lr=0.0), clients_per_round=2)
    assert _distance(two, mean) < 1e-5
