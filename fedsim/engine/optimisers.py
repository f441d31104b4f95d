"""Optimisers as frozen settings with explicit state, over torch's functional kernels.

An optimiser's state lives in the job that uses it and nowhere else; ``update`` writes into tensors that the
job owns. The kernels work element by element, so they serve stacked parameters of many clients as they are;
:class:`Clipped`, which looks at the whole gradient, serves one model.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from math import cos, pi
from typing import Protocol

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.sgd import sgd


class OptimiserState(Protocol):
    """What an optimiser remembers between steps of one job."""


class Optimiser(Protocol):
    """Settings that make a state and apply gradients."""

    @property
    def counted_as(self) -> Hashable:
        """What tells apart optimisers whose steps differ in cost; a learning rate does not."""

    def start(self, params: Sequence[Tensor]) -> OptimiserState:
        """Return the state before the first step."""

    def update(self, params: list[Tensor], gradients: list[Tensor], state: OptimiserState) -> None:
        """Move the parameters in place by one step."""


@dataclass(slots=True)
class SgdState:
    """Momentum buffers, one per parameter, made at the first step."""

    momentum: list[Tensor | None]


@dataclass(frozen=True, slots=True)
class Sgd:
    """Stochastic gradient descent: ``v <- momentum v + (g + weight_decay w)``, ``w <- w - lr v``."""

    lr: float
    momentum: float = 0.0
    weight_decay: float = 0.0

    @property
    def counted_as(self) -> Hashable:
        """Whether there is momentum, and whether there is weight decay."""
        return ("sgd", self.momentum > 0, self.weight_decay > 0)

    def start(self, params: Sequence[Tensor]) -> SgdState:
        """Return empty momentum buffers."""
        return SgdState([None] * len(params))

    def update(self, params: list[Tensor], gradients: list[Tensor], state: OptimiserState) -> None:
        """Move the parameters in place by one step."""
        assert isinstance(state, SgdState)  # noqa: S101 - our own bug, not a user's
        with torch.no_grad():
            if not self.momentum and not self.weight_decay:
                # The common case, without the kernel's bookkeeping; the same arithmetic.
                torch._foreach_add_(params, gradients, alpha=-self.lr)
                return
            sgd(
                params,
                gradients,
                state.momentum,
                foreach=True,
                weight_decay=self.weight_decay,
                momentum=self.momentum,
                lr=self.lr,
                dampening=0.0,
                nesterov=False,
                maximize=False,
            )


@dataclass(slots=True)
class AdamState:
    """First and second moments and the step count, one of each per parameter; ``unused`` is AMSGrad's."""

    first: list[Tensor]
    second: list[Tensor]
    steps: list[Tensor]
    unused: list[Tensor] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Adam:
    """Adam (Kingma and Ba, 2015) with torch's defaults."""

    lr: float
    weight_decay: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    @property
    def counted_as(self) -> Hashable:
        """Whether there is weight decay."""
        return ("adam", self.weight_decay > 0)

    def start(self, params: Sequence[Tensor]) -> AdamState:
        """Return moments of zero."""
        return AdamState(
            [torch.zeros_like(p) for p in params],
            [torch.zeros_like(p) for p in params],
            [torch.zeros((), dtype=torch.float32) for _ in params],
        )

    def update(self, params: list[Tensor], gradients: list[Tensor], state: OptimiserState) -> None:
        """Move the parameters in place by one step."""
        assert isinstance(state, AdamState)  # noqa: S101 - our own bug, not a user's
        with torch.no_grad():
            adam(
                params,
                gradients,
                state.first,
                state.second,
                state.unused,
                state.steps,
                foreach=True,
                amsgrad=False,
                beta1=self.beta1,
                beta2=self.beta2,
                lr=self.lr,
                weight_decay=self.weight_decay,
                eps=self.epsilon,
                maximize=False,
            )


@dataclass(frozen=True, slots=True)
class Clipped:
    """An optimiser that sees gradients of a limited length, as torch's ``clip_grad_norm_`` leaves them.

    Attributes:
        inner: What applies them.
        most: The largest Euclidean norm of all gradients together; a longer one is shortened to it.
    """

    inner: Optimiser
    most: float

    @property
    def counted_as(self) -> Hashable:
        """The inner optimiser's, and that its gradients are clipped."""
        return ("clipped", self.inner.counted_as)

    def start(self, params: Sequence[Tensor]) -> OptimiserState:
        """Return the inner state."""
        return self.inner.start(params)

    def update(self, params: list[Tensor], gradients: list[Tensor], state: OptimiserState) -> None:
        """Move the parameters in place by one step."""
        with torch.no_grad():
            norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
            factor = (self.most / (norm + 1e-6)).clamp(max=1.0)
            # New tensors: these gradients may be the caller's for longer than this step.
            gradients = list(torch._foreach_mul(gradients, factor))
        self.inner.update(params, gradients, state)


@dataclass(slots=True)
class CosineState:
    """The inner optimiser's state and how many steps were done."""

    inner: OptimiserState
    num_done: int = 0


@dataclass(frozen=True, slots=True)
class Cosine:
    """An optimiser whose learning rate falls along half a cosine, from its own to 0 (Loshchilov and Hutter).

    Attributes:
        inner: What moves the parameters; its ``lr`` is that of the first step.
        num_steps: After so many steps the rate is 0, and stays there.
    """

    inner: Sgd | Adam
    num_steps: int

    @property
    def counted_as(self) -> Hashable:
        """The inner optimiser's: the schedule is arithmetic of two numbers."""
        return self.inner.counted_as

    def start(self, params: Sequence[Tensor]) -> CosineState:
        """Return the state before the first step."""
        return CosineState(self.inner.start(params))

    def update(self, params: list[Tensor], gradients: list[Tensor], state: OptimiserState) -> None:
        """Move the parameters in place by one step."""
        assert isinstance(state, CosineState)  # noqa: S101 - our own bug, not a user's
        done = min(state.num_done, self.num_steps)
        rate = self.inner.lr * (1 + cos(pi * done / self.num_steps)) / 2
        replace(self.inner, lr=rate).update(params, gradients, state.inner)
        state.num_done += 1
