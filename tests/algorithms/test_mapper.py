"""MAPPER: the specification's sanity checks (5.D.10)."""

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedsim.algorithms.common.fine_tuning import FineTuning, FineTuningConfig, Passes
from fedsim.algorithms.mapper import ClientState, Mapper, MapperConfig
from fedsim.params import Model
from fedsim.runtime.run import run
from fedsim.wire import ModelBroadcast
from tests.algorithms.stand_ins import Client

PLAIN: dict[str, Any] = {"verify": False, "training": {"steps": 5}}


class TunedMapperConfig(MapperConfig, FineTuningConfig):
    finetune_epochs: Passes = 1


class TunedMapper(FineTuning[TunedMapperConfig, Model], Mapper):
    Config = TunedMapperConfig


def _model(value: float) -> Model:
    return Model("mlp", {"w": np.full(2, value, np.float32)}, {"mean": np.full(1, value, np.float32)})


def _value(model: Model) -> float:
    return float(model.params["w"][0])


def test_a_mixture_by_hand() -> None:
    mixture = ClientState(_model(8.0), 0.25).mixture(_model(4.0), "params")
    assert mixture.params["w"].tolist() == mixture.buffers["mean"].tolist() * 2 == [5.0, 5.0]
    assert ClientState(_model(0.1), 0.25).mixture(_model(0.1), "params").digest() == _model(0.1).digest()


def test_outputs_are_mixed_by_hand() -> None:
    mixture = ClientState(_model(8.0), 0.25).mixture(_model(4.0), "outputs")
    assert mixture.architecture == "mlp|mlp"
    assert mixture.params["body.both.first.w"].tolist() == [8.0, 8.0]
    assert mixture.params["body.both.second.w"].tolist() == [4.0, 4.0]
    assert mixture.buffers["body.both.second.mean"].tolist() == [4.0]
    assert mixture.buffers["head.weights"].tolist() == [0.25, 0.75]
    assert ClientState(_model(8.0), 1.0).mixture(_model(4.0), "outputs").digest() == _model(8.0).digest()
    assert ClientState(_model(8.0), 0.0).mixture(_model(4.0), "outputs").digest() == _model(4.0).digest()


def test_mixtures_are_compared_and_the_global_model_trains_beside_the_new_own_one(world: Any) -> None:
    # The first mixture has the least loss, 0.25 * 12 = 3; of own models alone it would be the second.
    trainings, trained = list[tuple[float, float, float]](), iter((12.0, 3.0, 1.0))
    keeping, kept = list[bool](), list[tuple[str, float]]()

    class Mixing(Client):
        async def evaluate(self, model: Model, samples: str) -> Any:
            return SimpleNamespace(loss=abs(_value(model) - 3))

        async def fit(self, model: Model, *, step: Any, extras: Any, keeps: bool = True, **_: Any) -> Any:
            keeping.append(keeps)
            beside = float(extras["other"].value["w"][0])
            trainings.append((_value(model), beside, step.loss.share))
            return SimpleNamespace(model=_model(next(trained)))

        def keep(self, kept_as: str, fitted: Any) -> None:
            kept.append((kept_as, _value(fitted.model)))

    turn = world.algorithm("mapper", lambdas=(0.25, 0.75)).train
    message = ModelBroadcast.of(_model(0.0))
    after, reply = asyncio.run(turn(Mixing(), ClientState(_model(8.0), 0.75), message))
    assert trainings == [(8.0, 0.0, 0.25), (8.0, 0.0, 0.75), (0.0, 12.0, 0.75)]
    assert (_value(after.model), after.lam) == (12.0, 0.25)
    assert _value(reply.model) == 1.0
    # The own model has one optimiser, that of the training that is kept.
    assert keeping == [False, False, True]
    assert kept == [("personal", 12.0)]


def _states(world: Any, algorithm: Any, **changes: Any) -> dict[int, list[ClientState]]:
    calls, states = world.recorded(algorithm, "train"), dict[int, list[ClientState]]()
    world.run(algorithm, **{**PLAIN, **changes})
    for (client, *_), (state, _) in calls:
        states.setdefault(client.client, []).append(state)
    return states


def test_the_weight_with_the_least_validation_loss_is_kept(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each client likes another weight; client 3 likes two alike.
    liked = {0: (3, 1, 2), 1: (2, 1, 3), 2: (3, 2, 1), 3: (1, 1, 2)}
    calls: dict[int, int] = dict.fromkeys(liked, 0)

    async def loss(client: Any, model: Model) -> float:
        calls[client.client] += 1
        return float(liked[client.client][calls[client.client] - 1])

    monkeypatch.setattr("fedsim.algorithms.mapper.validation_loss", loss)
    states = _states(world, world.algorithm("mapper"), rounds=1)
    assert {client: one[0].lam for client, one in states.items()} == {0: 0.5, 1: 0.5, 2: 0.75, 3: 0.25}


def test_without_validation_samples_the_training_loss_decides(world: Any) -> None:
    notes, without = world.notes(), world.holding(world.data(), "val", [[]] * 4)
    run(world.parts(world.algorithm("mapper"), rounds=1, data=without), log=notes)
    assert len(notes.of("no validation samples")) == 4 * 3


def test_each_weight_begins_where_the_client_stands(world: Any) -> None:
    # The last weight tried is as good as one tried alone.
    several, alone = (world.algorithm("mapper", lambdas=lambdas) for lambdas in ((0.25, 0.75), (0.75,)))
    tried = {client: one[-1] for client, one in _states(world, alone, rounds=1).items()}
    kept = {client: one[-1] for client, one in _states(world, several, rounds=1).items()}
    same = [client for client, one in kept.items() if one.lam == 0.75]
    assert same
    assert all(kept[client].model.digest() == tried[client].model.digest() for client in same)


def test_a_client_that_was_never_asked_mixes_in_the_middle(world: Any) -> None:
    algorithm = world.algorithm("mapper")
    start: Model = world.parts(algorithm).initial()("mlp")

    assert algorithm.join(SimpleNamespace(initial_model=lambda: start)) == ClientState(start, 0.5)


def test_of_linear_nets_mixed_outputs_are_those_of_mixed_parameters(world: Any) -> None:
    def trained(mix: str) -> tuple[list[ClientState], Any]:
        algorithm = world.algorithm("mapper", lambdas=(0.25, 0.75), mix=mix)
        calls = world.recorded(algorithm, "train")
        final = world.run(algorithm, models=("linear", "linear"), **PLAIN).final
        calls.sort(key=lambda call: (call[0][0].client, call[0][0].dispatch))
        return [state for _, (state, _) in calls], final

    (states, final), (its_states, its_final) = trained("params"), trained("outputs")
    assert len(states) == 4 * 3
    for state, its in zip(states, its_states, strict=True):
        assert state.lam == its.lam
        for name, array in state.model.params.items():
            np.testing.assert_allclose(its.model.params[name], array, atol=1e-5)
    np.testing.assert_allclose(its_final.losses, final.losses, rtol=1e-4)
    assert its_final.mean == final.mean


def test_weights_are_compared_by_the_loss_of_mixed_outputs(world: Any) -> None:
    algorithm, measured = world.algorithm("mapper", mix="outputs"), list[str]()
    original = algorithm.train

    async def watching(client: Any, state: Any, message: Any) -> Any:
        evaluate = client.evaluate

        async def watched(model: Model, samples: Any, **options: Any) -> Any:
            measured.append(model.architecture)
            return await evaluate(model, samples, **options)

        client.evaluate = watched
        return await original(client, state, message)

    algorithm.train = watching
    world.run(algorithm, rounds=1, **PLAIN)
    assert measured == ["mlp|mlp"] * 4 * 3


@pytest.mark.slow
def test_mixtures_of_outputs_are_fine_tuned_and_held_every_way(world: Any) -> None:
    made = TunedMapperConfig(mix="outputs")
    tuned = world.check_every_way(lambda: TunedMapper(made), workers=(4,), rounds=2)
    mixture = tuned.models[0]["personal"]
    assert mixture.architecture == "mlp|mlp"
    assert sorted(mixture.buffers) == ["head.weights"]
