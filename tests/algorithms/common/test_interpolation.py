"""Models between two models, and gradients there."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, cast

import numpy as np
import pytest
import torch
from torch import Tensor

from fedsim.algorithms.common.interpolation import between, loss_between
from fedsim.engine.losses import Batch
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
        self.params = {"w": torch.tensor([w], requires_grad=True)}

    def at(self, params: Mapping[str, Tensor], *, moves_buffers: bool) -> Callable[[Tensor], Tensor]:
        assert moves_buffers
        return lambda x: x * params["w"]


@pytest.mark.parametrize(("share", "gradient"), [(0.25, 0.25 * 14), (1.0, 8.0), (0.0, 0.0)])
def test_gradients_go_to_the_model_and_to_its_share(share: float, gradient: float) -> None:
    model: Any = _Line(4.0)
    weight, other = torch.tensor(share, requires_grad=True), {"w": torch.tensor([8.0])}
    batch = Batch(torch.ones(1, 1), torch.zeros(1))
    loss = loss_between(model, other, weight, batch)
    mixture = share * 4 + (1 - share) * 8
    assert float(loss.detach()) == mixture**2
    by_model, by_share = torch.autograd.grad(loss, [model.params["w"], weight])
    assert by_model.tolist() == [gradient]
    assert float(by_share) == (4 - 8) * 2 * mixture
    assert float(loss_between(model, other, share, batch).detach()) == mixture**2


def test_a_mixture_is_laid_out_as_the_model() -> None:
    # A convolution of one channel, whose channels come last.
    weight = torch.ones(6, 3, 3, 1).movedim(3, 1).requires_grad_()

    class Model:
        params: ClassVar[dict[str, Tensor]] = {"w": weight}

        def at(self, params: Mapping[str, Tensor], *, moves_buffers: bool) -> Callable[[Tensor], Tensor]:
            strides.append(params["w"].stride())
            return lambda x: x * params["w"].sum()

    strides, model = list[tuple[int, ...]](), cast(Any, Model())
    batch = Batch(torch.ones(1, 1), torch.zeros(1))
    loss_between(model, {"w": torch.zeros(6, 1, 3, 3)}, 0.25, batch)
    assert strides == [weight.stride()]
    assert weight.stride() != torch.zeros(6, 1, 3, 3).stride()
