"""FedAMP: the specification's sanity checks (5.D.3)."""

import asyncio
from math import exp
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from fedsim.algorithms.fedamp import (
    PULL,
    ImplicitProximal,
    Mixture,
    by_cosine,
    by_distance,
    scales,
    squared_distances,
)
from fedsim.engine.training_config import TrainingConfig
from fedsim.params import Model
from fedsim.runtime.run import run
from tests.algorithms.stand_ins import Server

# Arithmetic


def test_distances_follow_from_inner_products() -> None:
    vectors = np.array([[0.0, 3.0], [4.0, 0.0], [0.0, 3.0]])
    own, products = np.eye(3) > 0, vectors @ vectors.T
    squares = np.array([9.0, 16.0, 9.0])
    assert squared_distances(products, squares, own).tolist() == [[0, 25, 0], [25, 0, 25], [0, 25, 0]]
    assert squared_distances(products[1:2], squares, own[1:2]).tolist() == [[25, 0, 25]]


def test_weights_by_distance() -> None:
    distances = np.array([[0.0, 2.0, 4.0], [2.0, 0.0, 6.0], [4.0, 6.0, 0.0]])
    weights, num_heavy = by_distance(distances, np.eye(3) > 0, 2.0, 0.5)
    near, far, farthest = (0.25 * exp(-one) for one in (1, 2, 3))
    wanted = [[1 - near - far, near, far], [near, 1 - near - farthest, farthest], [far, farthest, 0]]
    wanted[2][2] = 1 - far - farthest
    np.testing.assert_allclose(weights, wanted)
    np.testing.assert_allclose(weights.sum(axis=1), 1)
    assert (weights == weights.T).all()
    assert num_heavy == 0
    some, _ = by_distance(distances[[2, 0]], (np.eye(3) > 0)[[2, 0]], 2.0, 0.5)
    assert some.tolist() == weights[[2, 0]].tolist()


def test_weights_of_others_are_scaled_where_they_are_more_than_one() -> None:
    distances = np.array([[0.0, 0.0, 50.0], [0.0, 0.0, 50.0], [50.0, 50.0, 0.0]])
    weights, num_heavy = by_distance(distances, np.eye(3) > 0, 1.0, 2.0)
    assert num_heavy == 2
    np.testing.assert_allclose(weights[:2], [[1 / 3, 2 / 3, 0], [2 / 3, 1 / 3, 0]], atol=1e-12)
    np.testing.assert_allclose(weights[2], [0, 0, 1], atol=1e-12)


def test_without_a_scale_all_keep_to_themselves() -> None:
    weights, _ = by_distance(np.zeros((2, 2)), np.eye(2) > 0, None, 0.0)
    assert weights.tolist() == [[1, 0], [0, 1]]


def test_weights_by_cosine() -> None:
    vectors = np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]])
    products, squares, own = vectors @ vectors.T, np.array([1.0, 4.0, 9.0]), np.eye(3) > 0
    weights = by_cosine(products, squares, own, 2.0)
    same, across = (2 / 3 * part / (exp(2) + 1) for part in (exp(2), 1))
    np.testing.assert_allclose(weights[0], [1 / 3, across, same])
    np.testing.assert_allclose(weights[1], [1 / 3, 1 / 3, 1 / 3])
    some = by_cosine(products[[2, 0]], squares, own[[2, 0]], 2.0)
    assert some.tolist() == weights[[2, 0]].tolist()
    assert by_cosine(np.ones((1, 1)), np.ones(1), np.ones((1, 1)) > 0, 2.0).tolist() == [[1.0]]


def test_scales_are_found_when_there_are_two_models() -> None:
    distances, own = np.array([[0.0, 2.0, 4.0], [2.0, 0.0, 6.0], [4.0, 6.0, 0.0]]), np.eye(3) > 0
    sigma, alpha = scales(distances, own, None, None)
    assert sigma == 4.0
    assert alpha is not None
    weights, _ = by_distance(distances, own, sigma, alpha)
    assert (1 - np.diagonal(weights)).mean() == pytest.approx(0.5)
    assert scales(distances, own, 1.0, 2.0) == (1.0, 2.0)
    for few in (np.zeros((1, 1)), np.zeros((2, 2))):
        assert scales(few, np.eye(len(few)) > 0, None, None) == (None, None)


def test_scales_of_some_mixtures_are_those_of_their_distances() -> None:
    distances, own = np.array([[2.0, 0.0, 6.0]]), np.array([[False, True, False]])
    sigma, alpha = scales(distances, own, None, None)
    assert sigma == 4.0
    assert alpha == pytest.approx(0.5 * 4 / (exp(-2 / 4) + exp(-6 / 4)))
    weights, _ = by_distance(distances, own, sigma, alpha or 0)
    assert weights[0, 1] == pytest.approx(0.5)


def test_a_step_with_the_pull_is_the_proximal_step() -> None:
    # w' minimises g w' + pull/2 (w' - u)^2 + (w' - w)^2 / (2 lr).
    w, u, g, pull, lr = 3.0, 1.0, 0.5, 4.0, 0.1
    model: Any = SimpleNamespace(params={"w": torch.tensor([w])})
    gradients, anchor = [torch.tensor([g])], {"anchor": {"w": torch.tensor([u])}}
    (gradient,) = ImplicitProximal(pull, lr)(model, gradients, anchor)
    after = w - lr * float(gradient)
    assert after == pytest.approx((w / lr + pull * u - g) / (1 / lr + pull))
    (same,) = ImplicitProximal(0.0, lr)(model, gradients, anchor)
    assert float(same) == g


# One turn


HALVED = {"name": "exponential", "params": {"gamma": 0.5}}


def _model(*values: float) -> Model:
    return Model("mlp", {"w": np.array(values, np.float32)})


def _server() -> Server:
    return Server(round=2, initial_model=lambda: _model(0.0, 0.0))


@pytest.mark.parametrize(
    ("params", "begins_at", "pull", "schedule"),
    [
        ({"lam": 1.0}, [1, 2], 2.0, ()),
        ({"lam": 1.0, "start": "mixture"}, [3, 4], 2.0, ()),
        ({}, [1, 2], 2.0 / (0.1 * 4), ()),  # over 4 steps at a rate of 0.1 it comes to 2
        ({}, [1, 2], 2.0 / (0.1 * 1.875), [{**HALVED, "by": "step"}]),
    ],
)
def test_a_client_is_held_near_the_mixture_wherever_it_begins(
    params: dict[str, Any], begins_at: list[int], pull: float, schedule: Any, world: Any
) -> None:
    met: list[tuple[Any, ...]] = []
    how = TrainingConfig(lr=0.1, schedule=schedule)

    class Client:
        training = how
        architecture = "mlp"

        def num_samples(self) -> int:
            return 5

        def usual_steps(self, architecture: str) -> int:
            return 4

        async def fit(self, model: Model, *, step: Any, extras: Any) -> Any:
            met.append((model.params["w"].tolist(), step.correct, extras["anchor"].value["w"].tolist()))
            return SimpleNamespace(model=_model(9, 9))

    message = Mixture("mlp", _model(3, 4).params, {}, 2.0)
    after, reply = asyncio.run(world.algorithm("fedamp", **params).train(Client(), _model(1, 2), message))
    assert met == [(begins_at, ImplicitProximal(pull, 0.1), [3, 4])]
    assert after.digest() == reply.model.digest() == _model(9, 9).digest()


@pytest.mark.parametrize(("params", "pull"), [({}, PULL), ({"lam": 3.0, "alpha": 2.0}, 1.5)])
def test_with_cosines_models_of_the_same_direction_weigh_most(
    params: dict[str, Any], pull: float, world: Any
) -> None:
    state = {0: _model(1, 0), 1: _model(0, 2), 2: _model(3, 0)}
    send = world.algorithm("fedamp", heur=True, sigma=2.0, **params).send
    _, sent = asyncio.run(send(_server(), state, [0]))
    same = exp(2) / (exp(2) + 1)
    np.testing.assert_allclose(sent[0].params["w"], [(1 + 2 * same * 3) / 3, 2 * (1 - same) * 2 / 3])
    assert sent[0].pull == pull


def test_only_the_cohorts_models_are_compared_with_all(world: Any) -> None:
    models = {client: _model(client, client**2 / 4) for client in range(6)}
    send = world.algorithm("fedamp", sigma=20.0, alpha=2.0).send
    some, everyone = _server(), _server()
    _, first = asyncio.run(send(some, models, [4, 1]))
    _, again = asyncio.run(send(everyone, models, range(6)))
    for client in (4, 1):
        np.testing.assert_allclose(again[client].params["w"], first[client].params["w"], rtol=1e-6)
    # Products of 2 by 6 models, a mean of 6, squares of the other 4.
    assert some.flops[0] == 2 * (2 * 6 + 6 + 4) * 2
    assert everyone.flops[0] == 2 * (6 * 6 + 6) * 2


def test_scales_follow_the_models(world: Any) -> None:
    # However far the models have come apart, others weigh a half of the mixtures.
    send = world.algorithm("fedamp", lam=1.0).send
    pulls = []
    for far in (1.0, 100.0):
        _, sent = asyncio.run(send(_server(), {0: _model(0, 0), 1: _model(far, 0)}, [0, 1, 2]))
        np.testing.assert_allclose(sent[0].params["w"], [far / 2, 0], rtol=1e-6)
        assert sent[2].pull == 0
        pulls.append(sent[0].pull)
    # alpha = 0.5 sigma / exp(-1), where sigma is the squared distance.
    np.testing.assert_allclose(pulls, [2 * exp(-1), 2 * exp(-1) / 1e4], rtol=1e-6)


# Runs


def test_half_of_a_mixture_are_others(world: Any) -> None:
    algorithm = world.algorithm("fedamp")
    calls = world.results(algorithm, "send")
    world.run(algorithm)
    (_, opening), *others = calls
    assert len({id(message) for message in opening.values()}) == 1
    assert opening[0].pull == 0.0
    for models, mixed in others:
        assert mixed[0].pull == PULL
        # A mixture of models that are all alike far is half a client's own and half of the others.
        name, *_ = mixed[0].params
        own = [models[client].params[name] for client in range(4)]
        apart = np.stack([mixed[client].params[name] - own[client] for client in range(4)])
        away = np.stack([(sum(own) - model) / 3 - model for model in own])
        assert 0.3 < np.vdot(apart, away) / np.vdot(away, away) < 0.7


def test_who_never_uploaded_gets_the_start_model_and_is_in_no_mixture(world: Any) -> None:
    algorithm = world.algorithm("fedamp")
    calls = world.results(algorithm, "send")
    world.run(algorithm, lost=lambda parcel, ordinal: parcel.sender == 1, client_timeout_s=9.0)
    start = world.parts(algorithm).initial()("mlp")
    for state, messages in calls[1:]:
        assert set(state) == {0, 2, 3}
        assert messages[1].model.digest() == start.digest()
        assert messages[0].model.digest() != start.digest()


def test_alpha_shrinks_after_thirty_rounds(world: Any) -> None:
    algorithm = world.algorithm("fedamp", lam=1.0, alpha=2.0, alpha_decay=0.5)
    calls = world.results(algorithm, "send")
    world.run(algorithm, rounds=31, clients_per_round=1, training={"steps": 1})
    pulls = [next(iter(messages.values())).pull for _, messages in calls]
    assert pulls == [0.5] * 30 + [1.0]


def test_a_strong_pull_does_not_diverge(world: Any) -> None:
    # An explicit step would multiply the distance by 1 - 0.1 * 1000 in each mini-batch.
    algorithm = world.algorithm("fedamp", lam=1000.0, alpha=1.0)
    models = world.watched(algorithm)
    world.run(algorithm)
    assert all(
        np.abs(array).max() < 10 for one in models.values() for array in one["personal"].params.values()
    )


def test_heavy_mixtures_are_told(world: Any) -> None:
    notes = world.notes()
    run(world.parts(world.algorithm("fedamp", alpha=1e4, sigma=1.0), rounds=2), log=notes)
    assert notes.of("others weigh more than a mixture holds")


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"rounds": 20, "training": {"epochs": 2}},
        {"rounds": 40, "training": {"epochs": 3, "lr": 0.02}, "num_clients": 8, "clients_per_round": 2},
    ],
)
def test_by_default_models_are_as_good_as_those_of_local(changes: dict[str, Any], world: Any) -> None:
    changes = {"num_samples": 400, "verify": False, **changes}
    notes = world.notes()
    result: Any = run(world.parts(world.algorithm("fedamp"), **changes), log=notes)
    assert not notes.of("others weigh more than a mixture holds")
    local = world.run(world.algorithm("local", follow_selection=True), **changes)
    assert result.final.mean > local.final.mean - 0.05
