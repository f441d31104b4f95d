"""Deep mutual learning: both losses, and that neither model moves before both gradients are taken."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import log
from typing import Any

import pytest
import torch

from fedsim.algorithms.common.mutual_learning import EXCHANGED, PERSONAL, MutualLearning
from fedsim.engine.losses import Batch
from fedsim.engine.optimisers import Sgd
from fedsim.engine.steps import Descent, Work


class _Live:
    """A model whose logits are its one parameter, ``[b, N]``."""

    def __init__(self, logits: list[list[float]]) -> None:
        self.params = {"logits": torch.tensor(logits, requires_grad=True)}

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.params["logits"]

    def features(self, x: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    def public(self, x: torch.Tensor) -> torch.Tensor:
        return self(x)

    def at(
        self, params: Mapping[str, torch.Tensor], *, moves_buffers: bool = False
    ) -> Callable[[torch.Tensor], torch.Tensor]:
        raise NotImplementedError


def _pair(own: list[list[float]], other: list[list[float]]) -> dict[str, Any]:
    return {PERSONAL: _Live(own), EXCHANGED: _Live(other)}


def _batches(labels: list[int]) -> dict[str, Batch]:
    return {"train": Batch(torch.zeros(len(labels), 1), torch.tensor(labels))}


def _values(losses: Mapping[str, torch.Tensor]) -> dict[str, float]:
    return {name: float(loss.detach()) for name, loss in losses.items()}


def test_losses_by_hand() -> None:
    # Own (1/2, 1/2), exchanged (3/4, 1/4); the label is the first class.
    models = _pair([[0.0, 0.0]], [[log(3.0), 0.0]])
    losses = _values(MutualLearning()(models, _batches([0]), {}))
    assert losses[PERSONAL] == pytest.approx(log(2) + 0.75 * log(1.5) + 0.25 * log(0.5), abs=1e-6)
    assert losses[EXCHANGED] == pytest.approx(log(4 / 3) + 0.5 * log(2 / 3) + 0.5 * log(2), abs=1e-6)
    alone = _values(MutualLearning(imitate=False)(models, _batches([0]), {}))
    assert alone[PERSONAL] == pytest.approx(log(2), abs=1e-6)
    assert alone[EXCHANGED] == pytest.approx(log(4 / 3), abs=1e-6)


def test_losses_are_means_over_the_batch() -> None:
    once = _values(MutualLearning()(_pair([[1.0, 0.0]], [[0.0, 2.0]]), _batches([0]), {}))
    thrice = _values(MutualLearning()(_pair([[1.0, 0.0]] * 3, [[0.0, 2.0]] * 3), _batches([0] * 3), {}))
    for name in (PERSONAL, EXCHANGED):
        assert once[name] == pytest.approx(thrice[name], abs=1e-6)


def test_the_others_predictions_count_as_given() -> None:
    models = _pair([[0.5, -1.0]], [[-0.3, 0.2]])
    losses = MutualLearning()(models, _batches([1]), {})
    for name, other in ((PERSONAL, EXCHANGED), (EXCHANGED, PERSONAL)):
        logits = models[other].params["logits"]
        (gradient,) = torch.autograd.grad(losses[name], logits, retain_graph=True, allow_unused=True)
        assert gradient is None


def test_gradients_are_differences_of_probabilities() -> None:
    # d(CE + KL(q || p))/dz = (p - y) + (p - q).
    models = _pair([[0.5, -1.0, 0.0]], [[-0.3, 0.2, 1.0]])
    losses = MutualLearning()(models, _batches([1]), {})
    p, q = (torch.softmax(models[name].params["logits"].detach(), 1) for name in (PERSONAL, EXCHANGED))
    y = torch.tensor([[0.0, 1.0, 0.0]])
    for name, expected in ((PERSONAL, 2 * p - y - q), (EXCHANGED, 2 * q - y - p)):
        (gradient,) = torch.autograd.grad(losses[name], models[name].params["logits"], retain_graph=True)
        assert torch.allclose(gradient, expected, atol=1e-6)


def test_equal_models_teach_each_other_nothing() -> None:
    start = [[0.5, -1.0], [2.0, 0.1]]
    mutual, alone = (
        _values(MutualLearning(imitate)(_pair(start, start), _batches([0, 1]), {}))
        for imitate in (True, False)
    )
    for name in (PERSONAL, EXCHANGED):
        assert mutual[name] - alone[name] == pytest.approx(0, abs=1e-6)


def test_both_gradients_are_taken_before_either_model_moves() -> None:
    starts = {PERSONAL: [[0.5, -1.0]], EXCHANGED: [[-0.3, 0.2]]}
    ends = []
    for order in ((PERSONAL, EXCHANGED), (EXCHANGED, PERSONAL)):
        models: dict[str, Any] = {name: _Live(starts[name]) for name in order}
        optimiser = Sgd(lr=0.5)
        states = {name: optimiser.start(list(models[name].params.values())) for name in order}
        work = Work(models, order, {}, dict.fromkeys(order, optimiser), states, torch.Generator())
        Descent(loss=MutualLearning())(work, _batches([0]))
        ends.append({name: models[name].params["logits"].tolist() for name in order})
    assert ends[0] == ends[1]
    assert ends[0][PERSONAL] != starts[PERSONAL]
    assert ends[0][EXCHANGED] != starts[EXCHANGED]
