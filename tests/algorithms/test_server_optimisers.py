"""Server optimisers: what they share, and second moments by hand (specification 5.B.4)."""

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedsim.algorithms.base import Reply
from fedsim.algorithms.server_optimisers import ServerState
from fedsim.params import Model
from fedsim.wire import ModelUpdate
from tests.algorithms.stand_ins import Server

NAMES = ["fedadagrad", "fedadam", "fedavgm", "fedyogi"]


def _model(value: float) -> Model:
    return Model(
        "mlp", {"w": np.array([value], np.float32)}, {"mean": np.array([value], np.float32), "n": np.array(7)}
    )


def _merged(algorithm: Any, state: ServerState, *changes: tuple[float, int]) -> ServerState:
    replies = [
        Reply(client, 0, "train", 0, 0, 1.0, ModelUpdate.of(_model(value), samples))
        for client, (value, samples) in enumerate(changes)
    ]
    after: ServerState = asyncio.run(algorithm.merge(Server(), state, replies))
    return after


@pytest.mark.parametrize("name", NAMES)
def test_steps_are_taken_from_the_mean_and_buffers_are_averaged(name: str, world: Any) -> None:
    algorithm = world.algorithm(name, server_lr=0.5)
    before = algorithm.start(SimpleNamespace(initial_model=lambda: _model(1.0)))
    after = _merged(algorithm, before, (2.0, 30), (6.0, 10))  # a mean of 3: a change of 2
    step, *moments = algorithm.step(np.array([2.0]), *before.moments["w"])
    assert after.model.params["w"].tolist() == [np.float32(1 + 0.5 * step.item())]
    assert after.model.params["w"].dtype == np.float32
    assert [one.tolist() for one in after.moments["w"]] == [one.tolist() for one in moments]
    assert after.model.buffers["mean"].tolist() == [3.0]
    assert after.model.buffers["n"] == 7
    assert before.model.params["w"].tolist() == [1.0]


def test_the_mean_of_the_changes_is_not_rounded_as_the_mean_of_the_models_is(world: Any) -> None:
    # Next to 2 ** 24 in float32 is 2 ** 24 + 2: their mean is no float32, the mean change is 1.
    algorithm = world.algorithm("fedavgm")
    before = algorithm.start(SimpleNamespace(initial_model=lambda: _model(2.0**24)))
    after = _merged(algorithm, before, (2.0**24, 1), (2.0**24 + 2, 1))
    assert [one.tolist() for one in after.moments["w"]] == [[1.0]]


def test_steps_become_shorter(world: Any) -> None:
    algorithm = world.algorithm("fedadagrad", epsilon=1e-3)
    u, v = algorithm.initial_moments(np.zeros(1))
    for number in (1, 2, 3):
        step, u, v = algorithm.step(np.array([2.0]), u, v)
        assert v.item() == pytest.approx(4.0 * number, rel=1e-6)
        assert step.item() == pytest.approx(1 / np.sqrt(number), rel=1e-3)


def test_moments_decay_and_nothing_is_corrected_for_bias(world: Any) -> None:
    algorithm = world.algorithm("fedadam", beta1=0.5, beta2=0.75, epsilon=1.0)
    u, v = algorithm.initial_moments(np.zeros(1))
    assert (u.tolist(), v.tolist()) == ([0.0], [1.0])
    step, u, v = algorithm.step(np.array([4.0]), u, v)
    assert (u.tolist(), v.tolist()) == ([2.0], [0.75 + 4.0])
    assert step.tolist() == [2.0 / (np.sqrt(4.75) + 1)]


def test_from_zero_the_first_step_is_fedyogi_s(world: Any) -> None:
    zero, change = np.zeros(3), np.array([0.5, -2.0, 0.0])
    adam, yogi = (world.algorithm(name).step(change, zero, zero) for name in ("fedadam", "fedyogi"))
    for mine, its in zip(adam, yogi, strict=True):
        np.testing.assert_allclose(mine, its, rtol=1e-12)


def test_the_second_moment_moves_by_the_square_of_the_change(world: Any) -> None:
    # Down by a quarter of a small square, up by a quarter of a large one, where FedAdam would go to 3.25.
    algorithm = world.algorithm("fedyogi", beta2=0.75)
    v, squared = np.array([4.0, 1.0, 1.0]), np.array([1.0, 9.0, 1.0])
    assert algorithm.second_moment(v, squared).tolist() == [3.75, 3.25, 1.0]


@pytest.mark.parametrize("clients_per_round", [None, 2])
def test_without_momentum_it_is_fedavg_but_for_rounding(clients_per_round: int | None, world: Any) -> None:
    # Bit for bit it is FedBuff: tests/algorithms/test_fedbuff.py.
    results, models = [], []
    for algorithm in (world.algorithm("fedavg"), world.algorithm("fedavgm", momentum=0.0)):
        seen = world.watched(algorithm)
        results.append(world.run(algorithm, clients_per_round=clients_per_round))
        models.append(seen[0]["global"])
    plain, fedavgm = results
    for name, array in models[0].params.items():
        np.testing.assert_allclose(models[1].params[name], array, rtol=0, atol=1e-6)
    assert fedavgm.totals == plain.totals
    assert fedavgm.simulated_s == plain.simulated_s


@pytest.mark.parametrize(
    ("params", "steps"),
    [({}, [2.0, 2.0]), ({"nesterov": False}, [2.0, 2.0]), ({"nesterov": True}, [3.0, 2.0])],
)
def test_the_velocity_remembers_earlier_changes(
    params: dict[str, bool], steps: list[float], world: Any
) -> None:
    # Changes of 2 and 1 with momentum 1/2: velocities of 2 and 2; Nesterov adds half of each to the change.
    algorithm = world.algorithm("fedavgm", momentum=0.5, **params)
    (velocity,), found = algorithm.initial_moments(np.zeros(1)), []
    for change in (2.0, 1.0):
        step, velocity = algorithm.step(np.array([change]), velocity)
        found += step.tolist()
    assert found == steps
    assert velocity.tolist() == [2.0]
