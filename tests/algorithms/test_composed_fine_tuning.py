"""Fine-tuning on top of any algorithm, whatever its clients hold and its server sends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from fedsim.algorithms.base import Predictor, Predictors, Replies, mirrored
from fedsim.algorithms.common.fine_tuning import FineTuning, FineTuningConfig, OptionalFineTuningConfig
from fedsim.algorithms.common.model_rounds import ModelTraining, mean_of_models
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.config import Config
from fedsim.params import Model, mean_model
from fedsim.plugins import load
from fedsim.wire import ModelBroadcast, ModelUpdate


@dataclass(frozen=True)
class Mine:
    """A client's part of its model, and how often the server has merged its share of the common one."""

    model: Model
    times_merged: int = mirrored()


class Halves(ModelTraining[Config, Model]):
    """A client's model is the mean of one of its own and of one that all have (as in MAPPER)."""

    def join(self, client: ClientContext) -> Mine:
        return Mine(client.initial_model(variant=1 + client.client), 0)

    async def own_model(self, client: ClientContext, state: Mine, message: ModelBroadcast) -> Model:
        return _half(state.model, message.model)

    async def train(self, client: ClientContext, state: Mine, message: ModelBroadcast) -> Any:
        own = (await client.fit(state.model, name="own")).model
        _, update = await super().train(client, state, message)
        return Mine(own, state.times_merged + 1), update

    async def merge(self, server: ServerContext, state: Model, replies: Replies[ModelUpdate]) -> Model:
        return mean_of_models(replies, "samples")

    async def models_of(self, observer: ClientContext, server_state: Model, client_state: Mine) -> Predictors:
        return {"personal": Predictor(_half(client_state.model, server_state))}


def _half(left: Model, right: Model) -> Model:
    return mean_model([left, right], [0.5, 0.5])


def _digest(models: Mapping[str, Model], name: str) -> bytes:
    return models[name].digest()


class TunedHalves(FineTuning[Any, Model], Halves):
    """No more than this."""

    Config = OptionalFineTuningConfig


def _tuned(**params: Any) -> TunedHalves:
    return TunedHalves(OptionalFineTuningConfig(**params))


@pytest.mark.slow
@pytest.mark.parametrize("training", [{}, {"momentum": 0.9}])
@pytest.mark.parametrize("passes", [2, "chosen"])
def test_models_are_the_same_every_way(passes: Any, training: dict[str, Any], world: Any) -> None:
    plain = world.run(Halves(Config()), training=training)
    tuned = world.check_every_way(lambda: _tuned(finetune_epochs=passes), training=training)
    assert tuned.final.others == {"untuned": plain.final.mean}
    assert all(_digest(one, "personal") != _digest(one, "untuned") for one in tuned.models.values())
    assert tuned.rounds[-1].traffic.frames_down == 4
    assert tuned.rounds[-1].traffic.frames_up == 0


def test_what_is_tuned_is_what_is_measured(world: Any) -> None:
    plain = world.run(Halves(Config()))
    untuned = world.run(_tuned(finetune_epochs=0))
    for client, models in untuned.models.items():
        measured = _digest(plain.models[client], "personal")
        assert _digest(models, "personal") == _digest(models, "untuned") == measured


def test_it_may_be_left_out(world: Any) -> None:
    plain, left_out = world.run(Halves(Config())), world.run(_tuned())
    assert (left_out.trace_hash, left_out.model_hash) == (plain.trace_hash, plain.model_hash)


def test_what_clients_mirror_is_settled_before(world: Any) -> None:
    # The last upload of client 2 is lost: it tunes all the same, and its field goes back to what was merged.
    uploads = []

    def third_of_client_2(parcel: Any, ordinal: int) -> bool:
        if parcel.sender == 2:
            uploads.append(ordinal)
        return bool(parcel.sender == 2 and len(uploads) == 3)

    kept = dict[int, Any]()

    class Watching(TunedHalves):
        async def local_finetune(self, client: ClientContext, state: Any, message: Any) -> Any:
            kept[client.client] = state.times_merged
            return await super().local_finetune(client, state, message)

    algorithm = Watching(OptionalFineTuningConfig(finetune_epochs=1))
    result = world.run(algorithm, lost=third_of_client_2, client_timeout_s=30.0)
    assert kept == {0: 3, 1: 3, 2: 2, 3: 3}
    assert all("untuned" in models for models in result.models.values())


COMPOSED = "ditto dsfl feddf fedmd fedper fedprox fml ktpfl ktpfl_w l2sgd local mapper perfed_ckt"


@pytest.mark.parametrize("name", COMPOSED.split())
def test_it_composes_with_algorithms_as_they_are(name: str, world: Any) -> None:
    method: Any = load("fedsim.algorithms", name)

    class Tuned(FineTuning[Any, Any], method):  # type: ignore[misc]
        _passes = 0

    config = method.Config(**({"server_steps": 3} if name == "feddf" else {}))
    plain, tuned = (world.run(kind(config), rounds=1) for kind in (method, Tuned))
    for client, models in tuned.models.items():
        before = plain.models[client]
        measured = _digest(before, "personal" if "personal" in before else "global")
        assert _digest(models, "personal") == _digest(models, "untuned") == measured


def test_the_optimiser_goes_on_over_passes_that_are_chosen(world: Any) -> None:
    # All samples are one mini-batch, so a pass is a step, and its order matters by rounding alone.
    training = {"batch_size": 1000, "lr": 0.01, "momentum": 0.9}

    def models(passes: Any, **changes: Any) -> list[Model]:
        class Tuned(FineTuning[FineTuningConfig, Model], Halves):
            Config = FineTuningConfig

        algorithm = Tuned(FineTuningConfig(finetune_epochs=passes))
        result = world.run(algorithm, rounds=1, training={**training, **changes})
        return [models["personal"] for models in result.models.values()]

    # With so small a rate the last pass is the best for everybody.
    fixed, chosen, kept = models(10), models("chosen"), models("chosen", keep_optimiser=True)
    for left, right, again in zip(fixed, chosen, kept, strict=True):
        assert right.digest() == again.digest()
        for name, array in left.params.items():
            np.testing.assert_allclose(right.params[name], array, atol=1e-6)
