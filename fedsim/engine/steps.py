"""What one training step does.

A step is a frozen, callable record: settings and module-level functions, nothing else, so that it can be
named, compared and sent to another process. It meets :class:`Work` (live models, optimiser states, extras, a
generator, all owned by one job) and a batch of each stream, and moves the trained models by one step.

Most algorithms need :class:`Descent` alone, with a loss of three lines and perhaps a correction of the
gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch
from torch import Tensor

from fedsim.engine.losses import Batches, Extras, LiveModel, Loss, Models, empirical_loss
from fedsim.engine.optimisers import Optimiser, OptimiserState

NUM_SAMPLES = "num_samples"
"""Name of the extra with the number of samples over which :class:`GradientSum` takes the mean."""

Correction = Callable[[LiveModel, list[Tensor], Extras], list[Tensor]]
"""Maps a model's gradients, in the order of its parameters, to corrected ones.

One that works element by element, on gradients, parameters and extras that are trees like the parameters, may
say so by an attribute ``is_elementwise = True``. It is then called once for many clients: each tensor has one
more dimension in front, the clients, and the model has ``params`` alone.
"""


@dataclass(slots=True)
class Work:
    """What a job owns while it runs.

    Attributes:
        extras: Extras, rows already chosen for the batch at hand.
        states: The state of each trained model's optimiser.
        generator: The job's generator for whatever the step draws, on the CPU.
        outputs: What the job gives beside models, by name; a step changes it, but no shape and no dtype.
    """

    models: Models
    trained: Sequence[str]
    extras: Extras
    optimisers: Mapping[str, Optimiser]
    states: Mapping[str, OptimiserState]
    generator: torch.Generator
    outputs: dict[str, Tensor] = field(default_factory=dict)

    def move(self, name: str, gradients: list[Tensor]) -> None:
        """Apply gradients to a trained model with its optimiser; they are in the order of its parameters."""
        params = list(self.models[name].params.values())
        self.optimisers[name].update(params, gradients, self.states[name])


class Step(Protocol):
    """One training step; hashable, so that its cost is counted once.

    A step, or the loss of a :class:`Descent`, that is made with many values of a setting on which its cost
    does not depend may have a property ``counted_as``: the same with one value in its place. One that moves a
    model more than once says how often by ``moves``, for learning rates that change from move to move.
    """

    def __call__(self, work: Work, batches: Batches) -> Tensor:
        """Move the trained models in place by one step; return the loss, a scalar without history."""

    def __hash__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Descent:
    """Gradient descent on a loss.

    With a loss per model (mutual learning) every gradient is taken before any model moves, so the order of
    the models does not matter. Each loss moves its own model alone; a parameter that it does not reach has
    gradient zero.

    Attributes:
        loss: Gives the scalar to descend, or one for each trained model.
        correct: Changes a gradient before it is applied (FedProx, SCAFFOLD).
    """

    loss: Loss = empirical_loss
    correct: Correction | None = None

    @property
    def counted_as(self) -> Descent:
        """A step of the same cost, in whose name it is counted (see :class:`Step`)."""
        loss = getattr(self.loss, "counted_as", self.loss)
        return self if loss is self.loss else replace(self, loss=loss)

    def __call__(self, work: Work, batches: Batches) -> Tensor:
        """Take gradients, correct them, apply them."""
        losses = self._losses(work, batches)
        last = work.trained[-1]
        moves = {}
        for name in work.trained:
            model = work.models[name]
            params = list(model.params.values())
            gradients = list(
                torch.autograd.grad(
                    losses[name], params, retain_graph=name != last, allow_unused=True, materialize_grads=True
                )
            )
            if self.correct is not None:
                with torch.no_grad():
                    gradients = self.correct(model, gradients, work.extras)
            moves[name] = gradients
        for name, gradients in moves.items():
            work.move(name, gradients)
        first, *others = (loss.detach() for loss in losses.values())
        return sum(others, start=first)

    def _losses(self, work: Work, batches: Batches) -> Mapping[str, Tensor]:
        """Return the loss of each trained model, by name."""
        losses = self.loss(work.models, batches, work.extras)
        by_name = {work.trained[0]: losses} if isinstance(losses, Tensor) else losses
        if len(by_name) != len(work.trained) or any(name not in by_name for name in work.trained):
            given = (
                "one scalar" if isinstance(losses, Tensor) else f"scalars for {', '.join(losses) or 'none'}"
            )
            raise ValueError(
                f"the loss gave {given}, the job trains {', '.join(work.trained)}: return one scalar for one "
                "trained model, or a mapping with one for each trained model and no other"
            )
        return by_name


@dataclass(frozen=True, slots=True)
class GradientSum:
    """No descent, but the gradient itself: adds up ``b / n * gradient`` of the batches that it meets.

    The outputs are those of the model's parameters, by their names; the extra ``num_samples`` is n. The model
    stays as it is.

    Attributes:
        loss: Gives a scalar, the mean over the batch.
    """

    loss: Loss = empirical_loss

    def __call__(self, work: Work, batches: Batches) -> Tensor:
        """Add the gradient of a batch."""
        (name,) = work.trained
        params = work.models[name].params
        loss = self.loss(work.models, batches, work.extras)
        if not isinstance(loss, Tensor):
            raise ValueError("the gradient of one model is that of one loss: return a scalar")
        gradients = torch.autograd.grad(
            loss, list(params.values()), allow_unused=True, materialize_grads=True
        )
        first = next(iter(batches.values()))
        for label, gradient in zip(params, gradients, strict=True):
            work.outputs[label] += gradient * (len(first.x) / work.extras[NUM_SAMPLES])
        return loss.detach()
