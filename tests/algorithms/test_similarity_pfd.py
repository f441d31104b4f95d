"""Sim-pFD and TopK-pFD: the specification's sanity checks (5.E.3, 5.E.4); the rest is tested with KT-pFL."""

import asyncio
from typing import Any

import numpy as np
import pytest

from fedsim.algorithms.common.codistillation import ServerState
from fedsim.params import Array, Model
from fedsim.rng import Key
from tests.algorithms.stand_ins import Server


def _predictions(num_clients: int, *, alike: bool = False) -> Array:
    scores = np.exp(Key.root(3).numpy().standard_normal((1 if alike else num_clients, 20, 5)))
    values: Array = (scores / scores.sum(axis=2, keepdims=True)).astype(np.float32)
    return np.repeat(values, num_clients, axis=0) if alike else values


def _weights(algorithm: Any, values: Array) -> Array:
    given = np.ones(values.shape[:2], np.bool_)
    weights: Array = asyncio.run(algorithm.weights(Server(), ServerState(values=values, given=given)))
    return weights


def test_of_two_the_other_weighs_nothing(world: Any) -> None:
    assert _weights(world.algorithm("sim_pfd"), _predictions(2)).tolist() == [[1, 0], [0, 1]]
    assert _weights(world.algorithm("sim_pfd", norm="sum"), _predictions(2)).min() > 0.3


def test_of_two_each_learns_from_itself_alone(world: Any) -> None:
    # The other's weight is 0, so a teacher is what the student said: nearly nothing moves but by training.
    two = world.run(world.algorithm("sim_pfd"), num_clients=2)
    mean = world.run(world.algorithm("sim_pfd", norm="sum"), num_clients=2)
    assert two.model_hash != mean.model_hash
    assert two.totals == mean.totals


def test_similarity_is_charged_to_the_server(world: Any) -> None:
    server = Server()
    values = _predictions(5)
    state = ServerState(values=values, given=np.ones((5, 20), np.bool_))
    asyncio.run(world.algorithm("sim_pfd").weights(server, state))
    assert server.flops == [2 * 5 * 6 * 20 * 5]


def test_only_those_who_answered_are_compared(world: Any) -> None:
    result = world.run(world.algorithm("sim_pfd"), clients_per_round=2)
    assert result.totals.parameters_up == 40 * 10 * 2 * 3


def _distance(left: dict[int, Model], right: dict[int, Model]) -> float:
    return max(
        float(np.abs(array - right[client].params[name]).max())
        for client, model in left.items()
        for name, array in model.params.items()
    )


def test_five_neighbours_by_default(world: Any) -> None:
    weights = _weights(world.algorithm("topk_pfd"), _predictions(9))
    assert ((weights > 0).sum(axis=1) == 5).all()
    assert set(weights.ravel().tolist()) == {0.0, 0.2}
    assert (np.diagonal(weights) > 0).all()


@pytest.mark.parametrize(("num_clients", "expected"), [(1, 1), (2, 1), (3, 2), (8, 4), (9, 5)])
def test_half_of_those_who_answered(num_clients: int, expected: int, world: Any) -> None:
    weights = _weights(world.algorithm("topk_pfd", half=True), _predictions(num_clients))
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
