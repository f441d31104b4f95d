"""Models between two models, and gradients there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedsim.algorithms.common.interpolation import between, slopes, slopes_between
from fedsim.engine.losses import TRAIN, Batch
from fedsim.params import Model


def _model(value: float, steps: int = 0) -> Model:
    return Model(
        "mlp",
        {"w": np.array([value, -value], np.float32)},
        {"mean": np.array([value], np.float32), "steps": np.array(steps, np.int64)},
    )


def test_models_move_some_of_the_way() -> None:
    own, other = _model(1.0), _model(5.0, 3)
    assert between(own, other, 0.0) is own
    assert between(own, other, 1.0) is other
    moved = between(own, other, 0.25)
    assert moved.params["w"].tolist() == [2.0, -2.0]
    assert moved.buffers["mean"].tolist() == [2.0]
    assert moved.buffers["steps"] == 3
    assert between(own, own, 0.3).params["w"].tolist() == own.params["w"].tolist()


class _Line:
    """Gives ``x w``; the squared error of x = 1, y = 0 is ``w^2``, its gradient ``2 w``."""

    def __init__(self, w: float) -> None:
        self.params = {"w": torch.tensor([w], requires_grad=True), "idle": torch.ones(2, requires_grad=True)}

    def __call__(self, x: Tensor) -> Tensor:
        return x * self.params["w"]


BATCHES = {TRAIN: Batch(torch.ones(1, 1), torch.zeros(1))}


@pytest.mark.parametrize("share", [0.25, torch.tensor(0.25)])
def test_gradients_are_those_by_the_mixture(share: Any) -> None:
    model: Any = _Line(4.0)
    loss, (gradient, idle) = slopes(model, BATCHES)
    assert (float(loss), gradient.tolist(), idle.tolist()) == (16.0, [8.0], [0.0, 0.0])
    other = {"w": torch.tensor([8.0]), "idle": torch.ones(2)}
    loss, (gradient, _) = slopes_between(model, other, share, BATCHES)
    assert (float(loss), gradient.tolist()) == (49.0, [14.0])  # at 0.25 * 4 + 0.75 * 8
    assert not loss.requires_grad
    assert model.params["w"].tolist() == [4.0]
