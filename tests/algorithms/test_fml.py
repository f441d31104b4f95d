"""FML: the specification's sanity checks (5.D.12)."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedsim.algorithms.base import Reply
from fedsim.algorithms.fml import MEME, PERSONAL, Mutual
from fedsim.engine.losses import TRAIN, Batch
from fedsim.params import Model
from fedsim.wire import ModelUpdate

MLP, LINEAR = 64 * 16 + 16 + 16 * 10 + 10, 64 * 10 + 10
PLAIN: dict[str, Any] = {"verify": False}


def test_both_losses_by_hand() -> None:
    logits = {PERSONAL: torch.tensor([[0.0, np.log(3.0)]]), MEME: torch.tensor([[0.0, 0.0]])}
    own, meme, half = np.array([0.25, 0.75]), np.array([0.5, 0.5]), np.log(2.0)
    towards_meme, towards_own = float(meme @ np.log(meme / own)), float(own @ np.log(own / meme))

    def model(name: str) -> Any:
        return lambda x: logits[name].requires_grad_()

    models: Any = {name: model(name) for name in logits}
    batches = {TRAIN: Batch(torch.zeros(1, 1), torch.tensor([0]))}

    def losses(alpha: float, beta: float) -> list[float]:
        made = Mutual(alpha, beta)(models, batches, {})
        return [float(made[name].detach()) for name in (PERSONAL, MEME)]

    assert losses(1.0, 1.0) == pytest.approx([np.log(4.0), half])
    assert losses(0.0, 0.0) == pytest.approx([towards_meme, towards_own])
    assert losses(0.75, 0.25) == pytest.approx(
        [0.75 * np.log(4.0) + 0.25 * towards_meme, 0.25 * half + 0.75 * towards_own]
    )


def test_each_loss_moves_its_own_model_alone() -> None:
    logits = {
        name: torch.randn(3, 4, generator=torch.Generator().manual_seed(0)) for name in (PERSONAL, MEME)
    }
    leaves: dict[str, Tensor] = {name: tensor.requires_grad_() for name, tensor in logits.items()}
    models: Any = {name: lambda x, name=name: leaves[name] for name in leaves}
    losses = Mutual(0.5, 0.5)(models, {TRAIN: Batch(torch.zeros(3, 1), torch.tensor([0, 1, 2]))}, {})
    for name, loss in losses.items():
        for other, leaf in leaves.items():
            (slope,) = torch.autograd.grad(loss, [leaf], retain_graph=True, allow_unused=True)
            assert (slope is not None) == (name == other)


@pytest.mark.parametrize("every_way", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_own_models_are_of_any_architecture_and_memes_travel(every_way: bool, world: Any) -> None:
    changes = {"models": ("linear", "mlp"), "rounds": 2, **PLAIN}

    def made() -> Any:
        return world.algorithm("fml")

    result = world.check_every_way(made, **changes) if every_way else world.run(made(), **changes)
    own = [models["personal"].architecture for models in result.models.values()]
    assert own == ["linear", "linear", "mlp", "mlp"]
    assert {models["global"].architecture for models in result.models.values()} == {"linear"}
    assert result.totals.parameters_up == result.totals.parameters_down == 8 * LINEAR


def test_what_is_no_meme_is_refused(world: Any) -> None:
    meme, own = Model("mlp", {}), Model("linear", {})
    reply = Reply(0, 0, "train", 0, 0, 1.0, ModelUpdate.of(own, 5))
    assert world.algorithm("fml").vet(SimpleNamespace(), meme, reply) == "architecture 'linear', not 'mlp'"
