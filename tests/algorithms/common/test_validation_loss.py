"""Choosing by validation, and what happens where there is nothing to choose by (specification 3.5, E11)."""

from __future__ import annotations

import asyncio
from math import inf, isnan, nan
from types import SimpleNamespace
from typing import Any

import pytest

from fedsim.algorithms.common.fine_tuning import validation_loss
from fedsim.params import Model


class _Client:
    def __init__(self, num_val: int, loss: float) -> None:
        self.num_val, self.loss, self.evaluated, self.warnings = num_val, loss, list[str](), list[Any]()

    def num_samples(self, split: str) -> int:
        return self.num_val if split == "val" else 9

    def own(self, split: str) -> str:
        return split

    def warn(self, event: str, **values: Any) -> None:
        self.warnings.append((event, values))

    async def evaluate(self, model: Model, samples: str) -> Any:
        self.evaluated.append(samples)
        return SimpleNamespace(loss=self.loss)


def _loss(client: Any) -> float:
    return asyncio.run(validation_loss(client, Model("mlp", {})))


def test_it_is_the_loss_on_the_validation_samples() -> None:
    client = _Client(3, 0.25)
    assert _loss(client) == 0.25
    assert (client.evaluated, client.warnings) == (["val"], [])


def test_without_any_it_is_the_loss_on_the_training_samples_and_the_log_says_so() -> None:
    client = _Client(0, 0.5)
    assert _loss(client) == 0.5
    assert client.evaluated == ["train"]
    assert client.warnings == [("no validation samples", {"instead": "training loss"})]


@pytest.mark.parametrize("loss", [nan, inf])
def test_what_is_no_number_is_worse_than_any(loss: float) -> None:
    found = _loss(_Client(3, loss))
    assert found == inf
    assert not isnan(found)
