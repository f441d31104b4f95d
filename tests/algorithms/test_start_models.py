"""Several start models of one architecture: a server that has some, clients that have one each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from fedsim.algorithms.base import Algorithm, Exchange, Exchanges, Predictor, Predictors, Replies, broadcast
from fedsim.algorithms.common.model_rounds import mean_of_models
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.config import Config
from fedsim.params import Model, Tree
from fedsim.runtime import start_values
from fedsim.wire import Message, ModelUpdate, counted, message

SEVERAL = 3
SCALARS = 64 * 16 + 16 + 16 * 10 + 10


@message("several_models")
class SeveralModels(Message):
    """All of the server's models."""

    params: Mapping[str, Tree] = counted()


@message("picked_model")
class PickedModel(ModelUpdate):
    """The one that a client has picked and trained."""

    number: int = 0


class Picking(Algorithm[Config, tuple[Model, ...], None]):
    """Each client trains whichever of the server's models has the least loss (as HypCluster does)."""

    messages = (SeveralModels, PickedModel)
    variants: Sequence[int] = range(SEVERAL)

    @property
    def exchanges(self) -> Exchanges[tuple[Model, ...], None]:
        return (Exchange("train", instruct=self.send, local=self.train, merge=self.merge, reply=PickedModel),)

    def start(self, server: ServerContext) -> tuple[Model, ...]:
        return tuple(server.initial_model(variant=number) for number in self.variants)

    async def send(self, server: ServerContext, state: Any, cohort: Sequence[int]) -> Any:
        params = {str(number): model.params for number, model in enumerate(state)}
        return state, broadcast(cohort, SeveralModels(params))

    async def train(self, client: ClientContext, state: None, message: SeveralModels) -> Any:
        models = [Model(client.architecture, params) for params in message.params.values()]
        losses = [(await client.evaluate(model, client.own("train"))).loss for model in models]
        number = losses.index(min(losses))
        fitted = await client.fit(models[number])
        return None, replace(PickedModel.of(fitted.model, client.num_samples()), number=number)

    async def merge(self, server: ServerContext, state: Any, replies: Replies[Any]) -> Any:
        groups = [[one for one in replies if one.message.number == number] for number in range(len(state))]
        means = [mean_of_models(group, "samples") if group else None for group in groups]
        return tuple(mean or former for mean, former in zip(means, state, strict=True))

    async def models_of(self, observer: ClientContext, server_state: Any, client_state: None) -> Predictors:
        scores = [await observer.evaluate(model, observer.own("train")) for model in server_state]
        losses = [score.loss for score in scores]
        picked = {"personal": Predictor(server_state[losses.index(min(losses))])}
        return {**picked, **{str(number): Predictor(model) for number, model in enumerate(server_state)}}


class Alike(Picking):
    """Starts all from the same values."""

    variants = (0,) * SEVERAL


def _moved(world: Any, result: Any, variants: Sequence[int]) -> list[int]:
    """Return which of the server's models anybody has picked."""
    start = world.parts(world.algorithm("fedavg")).initial()
    at_end = result.models[0]
    return [
        number
        for number, variant in enumerate(variants)
        if at_end[str(number)].digest() != start("mlp", variant).digest()
    ]


@pytest.mark.slow
def test_models_that_start_differently_stay_apart(world: Any) -> None:
    several = world.run_every_way(lambda: Picking(Config()), num_clients=8, rounds=2)
    assert len(_moved(world, several, Picking.variants)) > 1
    alike = world.run(Alike(Config()), num_clients=8, rounds=1)
    assert _moved(world, alike, Alike.variants) == [0]  # of equals the first


@pytest.mark.parametrize("name", [pytest.param("ktpfl", marks=pytest.mark.slow), "local"])
def test_clients_can_start_each_in_its_own_way(name: str, world: Any) -> None:
    result = world.run_every_way(lambda: world.algorithm(name, same_start=False))
    assert result.model_hash != world.run(world.algorithm(name)).model_hash


@pytest.mark.parametrize("name", ["dsfl", "fedmd", "fedme", "fml", "ktpfl", "local", "perfed_ckt"])
def test_who_starts_alike_is_a_setting(name: str, world: Any) -> None:
    def variants(same: bool) -> list[int]:
        asked = list[int]()

        def initial_model(label: str | None, *, variant: int) -> Model:
            asked.append(variant)
            return Model("mlp", {})

        for number in range(3):
            world.algorithm(name, same_start=same).join(
                SimpleNamespace(client=number, initial_model=initial_model)
            )
        return asked

    assert variants(same=True) == [0, 0, 0]
    assert variants(same=False) == [1, 2, 3]


def test_variants_are_those_of_every_party(world: Any) -> None:
    first, second = (world.parts(world.algorithm("local")).initial() for _ in range(2))
    digests = [first("mlp", variant).digest() for variant in range(5)]
    assert len(set(digests)) == 5
    assert [second("mlp", variant).digest() for variant in reversed(range(5))] == digests[::-1]
    assert first("mlp").digest() == digests[0]
    assert first("mlp") is first("mlp", 0)


def test_a_million_variants_are_not_kept(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_values, "MOST_KEPT_BYTES", 3 * 4 * SCALARS)
    made = world.parts(world.algorithm("local")).initial()
    are_kept = [made("mlp", variant) is made("mlp", variant) for variant in range(1, 6)]
    assert are_kept == [True, True, True, False, False]
    assert made("mlp") is made("mlp")  # whatever else was asked for
