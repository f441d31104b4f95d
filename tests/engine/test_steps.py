from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from fedsim.engine.execute import fit
from fedsim.engine.jobs import Extra
from fedsim.engine.losses import Batch, Batches, Extras, LiveModel, Models
from fedsim.engine.optimisers import Sgd
from fedsim.engine.steps import Descent, Work
from fedsim.engine.worker_state import BoundNet
from fedsim.rng import Key
from tests.engine.conftest import Lab

LR = 0.5


def work_on(models: Mapping[str, BoundNet], *trained: str, extras: Extras | None = None) -> Work:
    optimiser = Sgd(LR)
    states = {name: optimiser.start(list(models[name].params.values())) for name in trained}
    return Work(models, trained, extras or {}, dict.fromkeys(trained, optimiser), states, Key.root(0).torch())


@pytest.fixture
def batches() -> Batches:
    generator = Key.root(3).torch()
    return {"train": Batch(torch.randn(5, 6, generator=generator), torch.tensor([0, 1, 2, 0, 1]))}


def copies(model: BoundNet) -> list[Tensor]:
    return [param.detach().clone() for param in model.params.values()]


def mutual(models: Models, batches: Batches, extras: Extras) -> Mapping[str, Tensor]:
    """Return for each model its distance from the other's logits; the way back from b's leads through a."""
    logits = {name: model(batches["train"].x) for name, model in models.items()}
    return {
        "a": F.mse_loss(logits["a"], logits["b"]),
        "b": F.mse_loss(logits["b"], logits["a"]) + models["a"](logits["b"].repeat(1, 2)).square().mean(),
    }


def test_one_loss_moves_the_model_down_its_gradient(lab: Lab, batches: Batches) -> None:
    net = lab.worker.bind("model", lab.start(), trained=True)
    before = copies(net)
    expected = F.cross_entropy(net(batches["train"].x), batches["train"].labels)
    gradients = torch.autograd.grad(expected, list(net.params.values()))
    loss = Descent()(work_on({"model": net}, "model"), batches)
    assert torch.equal(loss, expected.detach())
    assert not loss.requires_grad
    for after, old, gradient in zip(copies(net), before, gradients, strict=True):
        assert torch.equal(after, old - LR * gradient)


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_with_a_loss_per_model_all_gradients_are_taken_before_any_model_moves(
    lab: Lab, batches: Batches, order: tuple[str, str]
) -> None:
    nets = {name: lab.worker.bind(name, lab.start(seed=seed), trained=True) for seed, name in enumerate("ab")}
    before = {name: copies(net) for name, net in nets.items()}
    losses = mutual(nets, batches, {})
    gradients = {
        name: torch.autograd.grad(losses[name], list(nets[name].params.values()), retain_graph=True)
        for name in "ab"
    }
    loss = Descent(loss=mutual)(work_on(nets, *order), batches)
    assert float(loss) == pytest.approx((losses["a"] + losses["b"]).item())
    for name in "ab":
        for after, old, gradient in zip(copies(nets[name]), before[name], gradients[name], strict=True):
            assert torch.equal(after, old - LR * gradient)


@dataclass(frozen=True)
class Towards:
    """Replaces the gradient by the way from an anchor."""

    strength: float

    def __call__(self, model: LiveModel, gradients: list[Tensor], extras: Extras) -> list[Tensor]:
        return [
            0 * gradient + self.strength * (param - extras["anchor"][name])
            for gradient, (name, param) in zip(gradients, model.params.items(), strict=True)
        ]


def test_a_correction_changes_the_gradient_before_it_is_applied(lab: Lab) -> None:
    model, anchor = lab.start(seed=0), lab.start(seed=1)
    job = lab.make_fit(
        models={"model": model},
        step=Descent(correct=Towards(1.0)),
        extras={"anchor": Extra(anchor.params)},
        optimiser=Sgd(0.5),
        num_steps=1,
    )
    for name, after in fit(job, lab.worker).model.params.items():
        # Half of the way to the anchor.
        np.testing.assert_allclose(
            after, (model.params[name] + anchor.params[name]) / 2, rtol=1e-5, atol=1e-7
        )


def test_a_parameter_that_the_loss_does_not_reach_stays(lab: Lab, batches: Batches) -> None:
    net = lab.worker.bind("model", lab.start(), trained=True)
    before = dict(zip(net.params, copies(net), strict=True))
    Descent(loss=_of_features)(work_on({"model": net}, "model"), batches)
    moved = [name for name, param in net.params.items() if not torch.equal(param, before[name])]
    assert moved == ["body.fc1.linear.weight", "body.fc1.linear.bias"]


def _of_features(models: Models, batches: Batches, extras: Extras) -> Tensor:
    return models["model"].features(batches["train"].x).sum()


def _one(models: Models, batches: Batches, extras: Extras) -> Tensor:
    return sum((model(batches["train"].x).sum() for model in models.values()), torch.zeros(()))


def _for_c(models: Models, batches: Batches, extras: Extras) -> Mapping[str, Tensor]:
    return {"a": _one(models, batches, extras), "c": _one(models, batches, extras)}


@pytest.mark.parametrize(
    ("loss", "given"), [(_one, "gave one scalar"), (_for_c, "gave scalars for a, c")], ids=["one", "other"]
)
def test_losses_and_trained_models_belong_together(lab: Lab, batches: Batches, loss: Any, given: str) -> None:
    nets = {name: lab.worker.bind(name, lab.start(), trained=True) for name in "ab"}
    with pytest.raises(ValueError, match=f"{given}, the job trains a, b: return one scalar for one"):
        Descent(loss=loss)(work_on(nets, "a", "b"), batches)


def test_equal_steps_are_one_step_to_the_count_of_costs() -> None:
    assert Descent(correct=Towards(1.0)) == Descent(correct=Towards(1.0))
    assert hash(Descent()) == hash(Descent())
    assert Descent(correct=Towards(1.0)) != Descent(correct=Towards(2.0))
