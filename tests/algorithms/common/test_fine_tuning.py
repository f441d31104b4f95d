"""Fine-tuning: how long, and what is sent."""

import asyncio
from collections.abc import Sequence
from math import inf, isnan, nan
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedsim.algorithms.common.fine_tuning import Tuned, finetuned, validation_loss
from fedsim.algorithms.fedavg_ft import FedAvgFT, FedAvgFTConfig
from fedsim.engine.training_config import TrainingConfig
from fedsim.params import Model
from fedsim.wire import ModelBroadcast
from tests.algorithms.stand_ins import Client


def _model(passes: int) -> Model:
    return Model("mlp", {"passes": np.array([passes])})


def _passes(model: Model) -> int:
    return int(model.params["passes"][0])


class _Client(Client):
    """A client whose validation loss after n passes is the n-th of a list."""

    training = TrainingConfig()

    def __init__(self, losses: Sequence[float]) -> None:
        super().__init__(num_val=len(losses))
        self.losses, self.fits = losses, list[tuple[str, int]]()

    async def fit(self, model: Model, *, epochs: int, name: str, **_: Any) -> Any:
        self.fits.append((name, epochs))
        return SimpleNamespace(model=_model(_passes(model) + epochs))

    async def evaluate(self, model: Model, samples: str) -> Any:
        assert samples == "val"
        return SimpleNamespace(loss=self.losses[_passes(model)])


def _tuned(client: Any, passes: Any = "chosen") -> int:
    return _passes(asyncio.run(finetuned(client, _model(0), passes)))


@pytest.mark.parametrize(
    ("losses", "best"),
    [
        ([5, 4, 3, 6, 7, 8, 9, 9, 9, 9, 9], 2),
        ([5, 4, 3, 6, 7, 8, 9, 9, 9, 9, 1], 10),
        ([1, 4, 3, 6, 7, 8, 9, 9, 9, 9, 9], 0),  # none at all
        ([5, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4], 1),  # of equals, the fewest passes
        ([nan, nan, 3, nan, 2, 8, 9, 9, 9, 9, 9], 4),
        ([nan] * 11, 0),
        ([inf] * 11, 0),
    ],
)
def test_a_client_keeps_what_serves_it_best(losses: list[float], best: int) -> None:
    client = _Client(losses)
    assert _tuned(client) == best
    assert client.fits == [(f"finetune {number}", 1) for number in range(10)]
    assert client.warnings == []


def test_passes_can_be_fixed() -> None:
    client = _Client([0.0] * 11)
    assert _tuned(client, 3) == 3
    assert client.fits == [("finetune", 3)]


def test_no_pass_is_no_work() -> None:
    client, model = _Client([0.0]), _model(0)
    assert asyncio.run(finetuned(client, model, 0)) is model  # type: ignore[arg-type]
    assert client.fits == []


def test_without_validation_samples_there_are_five_passes_and_a_warning() -> None:
    client = _Client([])
    assert _tuned(client) == 5
    assert client.warnings == [("no validation samples", {"instead": "5 passes of fine-tuning"})]
    assert _tuned(_Client([]), 2) == 2


def test_each_client_is_sent_its_own_model_and_equal_ones_are_one_message() -> None:
    class Alternating(FedAvgFT):
        """Gives even clients one model, odd ones a new one each."""

        common = _model(0)

        def model_for(self, server: Any, state: Any, client: int) -> Model:
            return _model(client) if client % 2 else self.common

    algorithm = Alternating(FedAvgFTConfig())
    _, messages = asyncio.run(algorithm.send(None, None, range(40)))  # type: ignore[arg-type]
    found: list[Any] = [messages[client] for client in range(40)]
    assert [_passes(message.model) for message in found[1::2]] == list(range(1, 40, 2))
    assert all(message is found[0] for message in found[::2])


# Choosing by validation (specification 3.5, E11)


class _Measured(Client):
    """A client whose models all have one loss."""

    def __init__(self, num_val: int, loss: float) -> None:
        super().__init__(num_val)
        self.loss, self.evaluated = loss, list[str]()

    async def evaluate(self, model: Model, samples: str) -> Any:
        self.evaluated.append(samples)
        return SimpleNamespace(loss=self.loss)


def _loss(client: Any) -> float:
    return asyncio.run(validation_loss(client, Model("mlp", {})))


def test_it_is_the_loss_on_the_validation_samples() -> None:
    client = _Measured(3, 0.25)
    assert _loss(client) == 0.25
    assert (client.evaluated, client.warnings) == (["val"], [])


def test_without_any_it_is_the_loss_on_the_training_samples_and_the_log_says_so() -> None:
    client = _Measured(0, 0.5)
    assert _loss(client) == 0.5
    assert client.evaluated == ["train"]
    assert client.warnings == [("no validation samples", {"instead": "training loss"})]


@pytest.mark.parametrize("loss", [nan, inf])
def test_what_is_no_number_is_worse_than_any(loss: float) -> None:
    found = _loss(_Measured(3, loss))
    assert found == inf
    assert not isnan(found)


def test_a_dispatch_that_comes_after_fine_tuning_meets_what_the_algorithm_keeps() -> None:
    tuned = Tuned(None, _model(3))
    learn, finetune = FedAvgFT(FedAvgFTConfig()).exchanges
    client: Any = SimpleNamespace(fit=_fit, num_samples=lambda: 2)
    after, reply = asyncio.run(learn.local(client, tuned, ModelBroadcast.of(_model(0))))  # type: ignore[misc, arg-type]
    assert (after, _passes(reply.model)) == (tuned, 1)
    assert finetune.name == "finetune"


async def _fit(model: Model) -> Any:
    return SimpleNamespace(model=_model(_passes(model) + 1))
