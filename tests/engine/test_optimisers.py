from typing import Any

import pytest
import torch
from torch import Tensor

from fedsim.engine.optimisers import Adam, Optimiser, Sgd
from fedsim.rng import Key

SHAPES = [(3, 4), (4,), ()]


def _params() -> list[Tensor]:
    generator = Key.root(1).torch()
    return [torch.randn(shape, generator=generator) for shape in SHAPES]


def _moved(optimiser: Optimiser, num_steps: int) -> list[list[Tensor]]:
    generator, params = Key.root(2).torch(), _params()
    state, history = optimiser.start(params), []
    for _ in range(num_steps):
        gradients = [torch.randn(shape, generator=generator) for shape in SHAPES]
        optimiser.update(params, gradients, state)
        history.append([param.clone() for param in params])
    return history


def _moved_by_torch(kind: type[torch.optim.Optimizer], num_steps: int, **options: Any) -> list[list[Tensor]]:
    generator, params = Key.root(2).torch(), _params()
    optimiser, history = kind(params, **options), []
    for _ in range(num_steps):
        for param in params:
            param.grad = torch.randn(param.shape, generator=generator)
        optimiser.step()
        history.append([param.clone() for param in params])
    return history


CASES: list[tuple[Optimiser, type[torch.optim.Optimizer], dict[str, Any]]] = [
    (Sgd(0.1), torch.optim.SGD, {"lr": 0.1}),
    (Sgd(0.1, momentum=0.9), torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    (Sgd(0.1, weight_decay=0.01), torch.optim.SGD, {"lr": 0.1, "weight_decay": 0.01}),
    (
        Sgd(0.1, momentum=0.5, weight_decay=0.01),
        torch.optim.SGD,
        {"lr": 0.1, "momentum": 0.5, "weight_decay": 0.01},
    ),
    (Adam(0.01), torch.optim.Adam, {"lr": 0.01}),
    (Adam(0.01, weight_decay=0.1), torch.optim.Adam, {"lr": 0.01, "weight_decay": 0.1}),
    (
        Adam(0.01, beta1=0.5, beta2=0.9, epsilon=1e-3),
        torch.optim.Adam,
        {"lr": 0.01, "betas": (0.5, 0.9), "eps": 1e-3},
    ),
]


@pytest.mark.parametrize(("ours", "theirs", "options"), CASES, ids=[repr(case[0]) for case in CASES])
def test_every_step_is_that_of_torch(
    ours: Optimiser, theirs: type[torch.optim.Optimizer], options: dict[str, Any]
) -> None:
    mine, its = _moved(ours, 5), _moved_by_torch(theirs, 5, foreach=True, **options)
    for left, right in zip(mine, its, strict=True):
        assert all(map(torch.equal, left, right))


def test_sgd_by_hand() -> None:
    weight = torch.tensor([1.0, -2.0])
    optimiser = Sgd(lr=0.5, momentum=0.5, weight_decay=0.25)
    state = optimiser.start([weight])
    optimiser.update([weight], [torch.tensor([1.0, 1.0])], state)
    # g + w/4 = 1.25, 0.5; v is that; w <- w - v/2
    assert weight.tolist() == [0.375, -2.25]
    optimiser.update([weight], [torch.tensor([0.0, 0.0])], state)
    # g + w/4 = 0.09375, -0.5625; v = 1.25/2 + 0.09375, 0.25 - 0.5625
    assert weight.tolist() == [0.375 - 0.71875 / 2, -2.25 + 0.3125 / 2]


def test_a_state_belongs_to_one_use() -> None:
    optimiser = Sgd(0.1, momentum=0.9)
    assert all(map(torch.equal, _moved(optimiser, 3)[-1], _moved(optimiser, 3)[-1]))


def test_settings_are_values() -> None:
    assert Sgd(0.1) == Sgd(0.1)
    assert hash(Adam(0.1)) == hash(Adam(0.1))


@pytest.mark.parametrize("optimiser", [Sgd(0.1), Sgd(0.1, momentum=0.9), Adam(0.1)], ids=repr)
def test_parameters_that_require_gradients_are_moved_in_place(optimiser: Optimiser) -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    state = optimiser.start([weight])
    optimiser.update([weight], [torch.ones(3)], state)
    assert bool((weight < 1).all())
    assert weight.is_leaf
    assert weight.grad is None
