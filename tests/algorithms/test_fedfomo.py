"""FedFomo: the specification's sanity checks (5.D.4)."""

import asyncio
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedsim.algorithms.base import Reply
from fedsim.algorithms.common.model_set_message import ModelSet
from fedsim.algorithms.fedfomo import START, ClientState, ServerState, WeighedUpdate, best_offers, moved
from fedsim.params import Model
from fedsim.rng import Key
from tests.algorithms.stand_ins import Client

SCALARS = 64 * 16 + 16 + 16 * 10 + 10


def _model(*values: float) -> Model:
    return Model("mlp", {"w": np.array(values, np.float32)})


# Arithmetic


def test_models_that_gain_are_mixed_by_gain_for_distance() -> None:
    previous = _model(0.0, 0.0)
    models = [_model(3.0, 4.0), _model(0.0, 2.0), _model(9.0, 9.0)]
    mixed, weights = moved(previous, models, [5.0, 6.0, -1.0])
    np.testing.assert_allclose(weights, [1.0, 3.0, 0.0], rtol=1e-5)
    assert mixed is not None
    np.testing.assert_allclose(mixed.params["w"], [0.75, 1.0 + 1.5], rtol=1e-5)


def test_the_previous_model_gains_nothing_and_one_that_gains_is_taken_bit_for_bit() -> None:
    previous, other = _model(1.0, 2.0), _model(0.1, 0.7)
    assert moved(previous, [previous, other], [0.0, float("nan")])[0] is None
    mixed, weights = moved(previous, [previous, other], [0.0, 0.3])
    assert mixed is not None
    assert mixed.digest() == other.digest()
    assert weights[0] == 0
    assert moved(previous, [other], [float("inf")])[0] is None


def test_the_most_worth_are_offered_or_others_by_chance() -> None:
    worth = {1: 0.0, 2: 1.0, 3: 0.0, 4: 0.0, 5: 2.0, 6: 0.0, 7: 3.0}
    draws = [Key.root(number) for number in range(40)]
    assert {best_offers(key, worth, 3, 0.0) for key in draws} == {(2, 5, 7)}
    assert all({2, 5, 7}.isdisjoint(best_offers(key, worth, 3, 1.0)) for key in draws)
    some = Counter(one for key in draws for one in best_offers(key, worth, 3, 0.3))
    assert some.total() == 3 * 40
    assert sorted(some) == sorted(worth)
    assert 15 < some[7] < 40
    # Of models of equal worth any may be offered.
    equal = dict.fromkeys(worth, 0.0)
    assert {one for key in draws for one in best_offers(key, equal, 3, 0.0)} == set(worth)
    assert best_offers(draws[0], equal, 20, 0.5) == tuple(worth)
    assert best_offers(draws[0], {}, 3, 0.5) == ()


def test_the_chance_of_others_falls(world: Any) -> None:
    state = ServerState({client: _model(float(client)) for client in range(7)}, {0: {1: 1.0}})

    def offered(at: int, **params: Any) -> tuple[int, ...]:
        server: Any = SimpleNamespace(key=Key.root(at), round=at, initial_model=lambda: _model(0.0))
        after, messages = asyncio.run(world.algorithm("fedfomo", offers=1, **params).send(server, state, [0]))
        assert sorted(messages[0].models) == list(after.offered[0])
        found: tuple[int, ...] = after.offered[0]
        return found

    assert {offered(at) for at in range(7, 40)} == {(1,)}
    assert offered(1, epsilon=1.0) != (1,)
    assert {offered(at, epsilon=1.0) for at in range(21, 40)} == {(1,)}
    always = {offered(at, epsilon=1.0, epsilon_decay=0.0) for at in range(40)}
    assert always == {(other,) for other in range(2, 7)}


def test_worth_adds_up(world: Any) -> None:
    state = ServerState({}, {0: {3: 1.0}}, {0: (2, 3)})
    message = WeighedUpdate("mlp", _model(1.0).params, {}, 5, np.array([0.5, 2.0], np.float32))
    replies = [Reply(0, 0, "train", 0, 0, 1.0, message)]
    after = asyncio.run(world.algorithm("fedfomo").merge(None, state, replies))
    assert after.worth == {0: {2: 0.5, 3: 3.0}}
    assert after.models[0].digest() == _model(1.0).digest()
    assert state.worth == {0: {3: 1.0}}


# One turn


def test_a_client_mixes_its_own_trained_model_too(world: Any) -> None:
    losses, started = {(0.0, 0.0): 10.0, (3.0, 4.0): 5.0, (0.0, 2.0): 4.0}, list[Model]()

    class Mixing(Client):
        async def evaluate(self, model: Model, samples: str) -> Any:
            assert samples == "val"
            return SimpleNamespace(loss=losses[tuple(model.params["w"].tolist())])

        async def call(self, function: Any, *arguments: Any, flops: float) -> Any:
            return function(*arguments)

        async def fit(self, model: Model) -> Any:
            started.append(model)
            return SimpleNamespace(model=_model(7.0, 7.0))

    previous, offered, own = (_model(*values) for values in losses)
    turn = world.algorithm("fedfomo").train(Mixing(), ClientState(own, previous), ModelSet.of({3: offered}))
    after, reply = asyncio.run(turn)
    # The gains for the distances are 5 / 5 and 6 / 2.
    np.testing.assert_allclose(started[0].params["w"], [0.25 * 3, 0.25 * 4 + 0.75 * 2], rtol=1e-5)
    np.testing.assert_allclose(reply.weights, [1.0], rtol=1e-5)
    assert (after.model.digest(), after.previous) == (_model(7.0, 7.0).digest(), started[0])


def test_the_first_training_begins_with_the_start_model_that_was_sent(world: Any) -> None:
    started = list[Model]()

    class Training(Client):
        async def fit(self, model: Model) -> Any:
            started.append(model)
            return SimpleNamespace(model=_model(7.0))

    train, sent = world.algorithm("fedfomo").train, ModelSet.of({START: _model(3.0)})
    # One that has trained, and whose upload was lost, is sent it again and goes on with its own.
    for state in (ClientState(_model(1.0)), ClientState(_model(1.0), _model(2.0))):
        after, reply = asyncio.run(train(Training(), state, sent))
        assert after.previous is started[-1]
        assert len(reply.weights) == 0
    assert [model.digest() for model in started] == [_model(3.0).digest(), _model(1.0).digest()]


# Runs


def test_without_validation_samples_clients_keep_to_themselves(world: Any) -> None:
    data = world.holding(world.data(), "val", [[]] * 4)
    alone = world.run(world.algorithm("fedfomo"), data=data)
    assert alone.model_hash == world.run(world.algorithm("local"), data=data).model_hash


def test_several_models_come_down_and_one_goes_up(world: Any) -> None:
    algorithm = world.algorithm("fedfomo", offers=2)
    trained = world.recorded(algorithm, "train")
    totals = world.run(algorithm).totals
    assert totals.parameters_down == 4 * SCALARS * (1 + 2 + 2)
    assert totals.parameters_up == 3 * 4 * SCALARS
    assert 0 < totals.bytes_down - 4 * totals.parameters_down < 3 * 4 * 1500
    weights = [reply.weights for _, (_, reply) in trained]
    assert [one.nbytes for one in weights] == [0] * 4 + [4 * 2] * 8
    assert all((one >= 0).all() for one in weights)
    assert any((one > 0).any() for one in weights)
    assert 0 < totals.bytes_up - 4 * totals.parameters_up - 2 * 4 * 8 < 3 * 4 * 600


def test_a_client_remembers_where_its_training_began(world: Any) -> None:
    algorithm = world.algorithm("fedfomo")
    calls = world.recorded(algorithm, "train")
    world.run(algorithm)
    start = world.parts(algorithm).initial()("mlp").digest()
    first, last = ([call for call in calls if call[0][0].round == at] for at in (1, 3))
    assert all(after.previous.digest() == start for _, (after, _) in first)
    mixed = [after.previous.digest() != before.model.digest() for (_, before, _), (after, _) in last]
    assert any(mixed)


def test_who_never_uploaded_is_offered_to_nobody(world: Any) -> None:
    algorithm = world.algorithm("fedfomo")
    calls = world.recorded(algorithm, "send")
    world.run(algorithm, lost=lambda parcel, ordinal: parcel.sender == 1, client_timeout_s=9.0)
    for _, (_, messages) in calls[1:]:
        assert [sorted(messages[client].models) for client in range(4)] == [[2, 3], [START], [0, 3], [0, 2]]


@pytest.mark.parametrize("weights", [[-1.0, 0.0, 0.0], [1.0]])
def test_weights_that_cannot_be_are_rejected(weights: list[float], world: Any) -> None:
    def lie(client: Any, reply: Any) -> Any:
        lies = client.client == 2 and client.round == 2
        return replace(reply, weights=np.array(weights, np.float32)) if lies else reply

    result = world.run(world.lying(world.algorithm("fedfomo"), "train", lie))
    assert result.rejections == {"weights that are not 3 non-negative numbers": 1}
