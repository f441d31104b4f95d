"""Each loss that serves many clients gives each of them what it gives it alone, bit for bit."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import fedsim.algorithms
from fedsim.algorithms.common.distillation import Distillation
from fedsim.algorithms.fedgkt import Transfer
from fedsim.algorithms.fedme import EXCHANGED, PERSONAL, MutualLearning
from fedsim.algorithms.fml import MEME, Mutual
from fedsim.algorithms.mapper import OTHER, OfMixedOutputs
from fedsim.algorithms.moon import GLOBAL, Contrast
from fedsim.algorithms.perfed_ckt import CloseToTeacher
from fedsim.algorithms.persfl import Imitating
from fedsim.engine import losses
from fedsim.engine.batched.feed import Batches
from fedsim.engine.batched.losses import Losses
from fedsim.engine.losses import (
    Batch,
    Loss,
    absolute_error,
    can_serve_many,
    divergence,
    empirical_loss,
    serves_many,
    squared_error,
)
from fedsim.engine.steps import Descent
from fedsim.rng import Key
from fedsim.task import Task


def _imitating(**settings: Any) -> Callable[[int], Loss]:
    """Return a loss whose settings differ from client to client, as in PersFL's grid."""
    return lambda client: Imitating(0.25 + 0.15 * (client % 6), 1.0 + 1.3 * client, **settings)


LOSSES: Mapping[str, Callable[[int], Loss]] = {
    "empirical": lambda _: empirical_loss,
    "absolute error": lambda _: absolute_error,
    "squared error": lambda _: squared_error,
    "divergence": lambda _: divergence,
    "distillation": lambda _: Distillation(),
    "distillation at a temperature": lambda _: Distillation(3.0, 9.0),
    "held near": lambda _: CloseToTeacher(0.3),
    "held near outputs": lambda _: CloseToTeacher(0.7, classes=False),
    "imitating": _imitating(),
    "imitating, reverse": _imitating(soft="reverse"),
    "imitating, cross-entropy": _imitating(soft="cross_entropy"),
    "imitating, mean over classes": _imitating(per_class=True),
    "imitating, one pair": lambda _: Imitating(1.0, 5.0),
    "mutual": lambda _: MutualLearning(),
    "mutual, labels alone": lambda _: MutualLearning(imitate=False),
    "of mixed outputs": lambda _: OfMixedOutputs(0.75),
    "of a model and a meme": lambda _: Mutual(0.5, 0.3),
    "of a model and a meme, one from labels": lambda _: Mutual(1.0, 0.0),
    "of a server's logits": lambda _: Transfer(1.0, 0.5, 3.0),
    "contrast": lambda _: Contrast(2.0, 0.5),
}
TRAINED = {MutualLearning: (PERSONAL, EXCHANGED), Mutual: (PERSONAL, MEME)}
"""Names of the models of losses that train several."""
FOR_REGRESSIONS = ("empirical", "held near outputs", "of mixed outputs")
"""Losses of tasks without classes."""


def test_they_are_all_losses_that_serve_many() -> None:
    names_of_modules = [
        info.name for info in pkgutil.walk_packages(fedsim.algorithms.__path__, "fedsim.algorithms.")
    ]
    names = {
        name
        for module in (losses, *map(import_module, names_of_modules))
        for name, one in vars(module).items()
        if getattr(one, "__module__", None) == module.__name__ and _serves_many(one)
    }
    of_each = [make(0) for make in LOSSES.values()]
    assert names == {getattr(loss, "__name__", type(loss).__name__) for loss in of_each}


def _serves_many(one: Any) -> bool:
    """Return whether it is such a loss, or a class of such losses."""
    return can_serve_many(one) or (isinstance(one, type) and can_serve_many(vars(one).get("__call__", one)))


class Table:
    """A live model that has its logits, or features, already, the next ones at each call."""

    def __init__(self, given: list[Tensor], is_followed: bool) -> None:
        self.given, self.is_followed = given, is_followed
        self.outputs: list[Tensor] = []

    def __call__(self, x: Tensor) -> Tensor:
        self.outputs.append(self.given[len(self.outputs)].detach().requires_grad_(self.is_followed))
        return self.outputs[-1]

    public = features = __call__

    def head(self, features: Tensor) -> Tensor:
        return 2 * features


@dataclass(frozen=True)
class World:
    """What clients meet at one step: logits of nets in two calls, labels, and a teacher's rows."""

    logits: Mapping[str, list[Tensor]]
    labels: Tensor
    teacher: Tensor

    def of(self, client: int) -> World:
        logits = {name: [one[client] for one in some] for name, some in self.logits.items()}
        return World(logits, self.labels[client], self.teacher[client])

    def nets(self, *, with_autograd: bool = True) -> Any:
        return {name: Table(some, with_autograd) for name, some in self.logits.items()}

    def batches(self) -> dict[str, Batch]:
        x = torch.zeros(self.labels.shape)
        return {"train": Batch(x, self.labels), "public": Batch(x, None)}


@st.composite
def worlds(draw: st.DrawFn, name: str) -> World:
    num_clients, batch_size, num_classes = (draw(st.integers(1, 40)) for _ in range(3))
    generator = Key.root(draw(st.integers(0, 2**31))).torch()
    shape, width = (num_clients, batch_size, num_classes), draw(st.sampled_from([0.1, 3.0, 30.0]))

    def some() -> Tensor:
        return width * torch.randn(shape, generator=generator)

    logits = {
        name: [some(), some()] for name in ("model", OTHER, PERSONAL, EXCHANGED, MEME, GLOBAL, "previous 0")
    }
    labels = torch.randint(num_classes, shape[:2], generator=generator)
    if name in FOR_REGRESSIONS and draw(st.booleans()):
        labels = some()[..., 0]
    teacher = some().softmax(-1) if draw(st.booleans()) else some()
    if "distillation" in name and draw(st.booleans()):
        teacher = teacher.double()
    return World(logits, labels, teacher)


@pytest.mark.parametrize("name", LOSSES)
@settings(max_examples=settings().max_examples * 2 // 5)
@given(data=st.data(), num_steps=st.integers(1, 3))
def test_gradients_and_losses_are_those_of_one_client(name: str, data: st.DataObject, num_steps: int) -> None:
    world = data.draw(worlds(name))
    num_clients, batch_size = world.labels.shape
    task = Task((1,), 1, "regression" if world.labels.is_floating_point() else "classification")
    of_each = [LOSSES[name](client) for client in range(num_clients)]
    trained = TRAINED.get(type(of_each[0]), ("model",))
    jobs: Any = [
        SimpleNamespace(step=Descent(loss), trained=trained, num_steps=num_steps) for loss in of_each
    ]
    together = Losses(jobs, task)
    clients = slice(0, num_clients)
    batches = Batches(clients, (batch_size, batch_size), [(clients, batch_size)], world.batches(), {})
    for step in range(num_steps):
        nets = world.nets(with_autograd=not together.are_cross_entropies)
        grad_outputs = together.grad_outputs(step, batches, nets, {"teacher": world.teacher})
    for client, loss in enumerate(of_each):
        alone = world.of(client)
        nets = alone.nets()
        given = loss(nets, alone.batches(), {"teacher": alone.teacher})
        by_name = {"model": given} if isinstance(given, Tensor) else given
        first, *others = (one.detach() for one in by_name.values())
        assert together.mean(client) == fmean([float(sum(others, start=first))] * num_steps)
        for net, mine in by_name.items():
            gradients = torch.autograd.grad(mine, nets[net].outputs, retain_graph=True)
            for gradient, its_gradient in zip(gradients, grad_outputs[net], strict=True):
                assert its_gradient is not None
                assert gradient.numpy().tobytes() == its_gradient[client].numpy().tobytes()


@dataclass(frozen=True)
class Scaled:
    """A loss of a private plugin."""

    factor: float

    @serves_many
    def __call__(self, models: Any, batches: Any, extras: Any) -> Tensor:
        return empirical_loss(models, batches, extras)


class Overridden(Scaled):
    """One derived from it, of whose code nothing was said."""

    def __call__(self, models: Any, batches: Any, extras: Any) -> Tensor:
        return self.factor * empirical_loss(models, batches, extras)


def test_what_is_said_of_a_loss_is_not_said_of_one_derived() -> None:
    assert can_serve_many(Scaled(1.0))
    assert not can_serve_many(Overridden(1.0))
    assert not can_serve_many(lambda models, batches, extras: torch.zeros(()))
