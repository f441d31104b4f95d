"""Fine-tuning: how long, and what is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from math import inf, nan
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedsim.algorithms.common.fine_tuning import finetuned
from fedsim.algorithms.fedavg_ft import FedAvgFT, FedAvgFTConfig
from fedsim.engine.training_config import TrainingConfig
from fedsim.params import Model


def _model(passes: int) -> Model:
    return Model("mlp", {"passes": np.array([passes])})


def _passes(model: Model) -> int:
    return int(model.params["passes"][0])


class _Client:
    """A client whose validation loss after n passes is the n-th of a list."""

    def __init__(self, losses: Sequence[float]) -> None:
        self.losses, self.fits, self.warnings = losses, list[tuple[str, int]](), list[str]()
        self.training = TrainingConfig()

    def num_samples(self, split: str = "train") -> int:
        return len(self.losses) if split == "val" else 1

    def own(self, split: str) -> str:
        return split

    def warn(self, event: str, **values: Any) -> None:
        self.warnings.append(f"{event}: {values['instead']}")

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
    assert client.warnings == ["no validation samples: 5 passes of fine-tuning"]
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
