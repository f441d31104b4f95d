"""Optimisers as frozen settings with explicit state, over torch's functional kernels.

A state lives in the job that uses it. To go on in another job, bit for bit, it leaves as named tensors
(:func:`keep`) and comes back as such (:func:`resume`). The kernels work element by element, so they also
serve stacked parameters of many clients; :class:`ClippedEach` replaces :class:`Clipped`, which takes a whole
gradient.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from fedsim import portable_numerics
from fedsim.engine.schedules import ScheduleChoice, Schedules, factor


@dataclass(slots=True)
class OptimiserState:
    """By slot one tensor for each parameter, None where the first step makes it; steps done in this job."""

    slots: dict[str, list[Any]]
    num_steps: int = 0


class Optimiser(Protocol):
    """Settings that make a state and apply gradients; hashable."""

    @property
    def counted_as(self) -> Hashable:
        """What tells apart optimisers whose steps differ in cost; a learning rate does not."""

    def start(self, params: Sequence[Tensor]) -> OptimiserState:
        """Return the state before the first step."""

    def update(self, params: list[Tensor], gradients: list[Tensor], state: OptimiserState) -> None:
        """Move the parameters in place by one step."""

    def __hash__(self) -> int: ...


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

    def start(self, params: Sequence[Tensor]) -> OptimiserState:
        """Return empty momentum buffers, if there is momentum."""
        return OptimiserState({"momentum": [None] * len(params)} if self.momentum else {})

    def update(self, params: list[Tensor], gradients: list[Tensor], state: OptimiserState) -> None:
        """Move the parameters in place by one step."""
        with torch.no_grad():
            if not self.momentum and not self.weight_decay:
                # The common case, without the kernel's bookkeeping; the same arithmetic.
                torch._foreach_add_(params, gradients, alpha=-self.lr)
                return
            sgd(
                params,
                gradients,
                state.slots.get("momentum", [None] * len(params)),
                foreach=True,
                weight_decay=self.weight_decay,
                momentum=self.momentum,
                lr=self.lr,
                dampening=0.0,
                nesterov=False,
                maximize=False,
            )


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

    def start(self, params: Sequence[Tensor]) -> OptimiserState:
        """Return moments of zero."""
        first, second = ([torch.zeros_like(param) for param in params] for _ in range(2))
        steps = [torch.zeros((), dtype=torch.float32) for _ in params]
        return OptimiserState({"first": first, "second": second, "steps": steps})

    def update(self, params: list[Tensor], gradients: list[Tensor], state: OptimiserState) -> None:
        """Move the parameters in place by one step."""
        # A portable process takes the kernel whose roots are exact: MKL's differ between processors.
        fused = portable_numerics.is_requested() and params[0].is_cpu
        with torch.no_grad():
            adam(
                params,
                gradients,
                state.slots["first"],
                state.slots["second"],
                [],
                state.slots["steps"],
                foreach=not fused,
                fused=fused,
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
    """An optimiser of gradients of a norm of at most ``most`` together, as by ``clip_grad_norm_``."""

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
            gradients = self._shortened(gradients)
        self.inner.update(params, gradients, state)

    def _shortened(self, gradients: list[Tensor]) -> list[Tensor]:
        """Return new tensors: these gradients may be the caller's for longer than this step."""
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
        return list(torch._foreach_mul(gradients, self._factor(norm)))

    def _factor(self, norm: Tensor) -> Tensor:
        return (self.most / (norm + 1e-6)).clamp(max=1.0)


@dataclass(frozen=True, slots=True)
class ClippedEach(Clipped):
    """The same for stacked parameters of many clients, ``[m, ...]``: each gradient has its own norm."""

    def _shortened(self, gradients: list[Tensor]) -> list[Tensor]:
        # However they lie in memory, in the order of one client's elements: in another a sum has other bits.
        norms = [torch.linalg.vector_norm(one.reshape(len(one), -1).contiguous(), dim=1) for one in gradients]
        factors = self._factor(torch.linalg.vector_norm(torch.stack(norms, 1), dim=1))
        return [one * factors.view(-1, *[1] * (one.ndim - 1)) for one in gradients]


@dataclass(frozen=True, slots=True)
class Scheduled:
    """An optimiser whose rate follows schedules by step within a fit of ``length`` steps."""

    inner: Sgd | Adam
    schedules: Schedules
    length: int = 1

    @property
    def counted_as(self) -> Hashable:
        """The inner optimiser's: the schedule is arithmetic of a few numbers."""
        return self.inner.counted_as

    def start(self, params: Sequence[Tensor]) -> OptimiserState:
        """Return the inner state."""
        return self.inner.start(params)

    def update(self, params: list[Tensor], gradients: list[Tensor], state: OptimiserState) -> None:
        """Move the parameters in place by one step."""
        rate = self.inner.lr * factor(self.schedules, "step", state.num_steps, self.length)
        replace(self.inner, lr=rate).update(params, gradients, state)
        state.num_steps += 1


def cosine(inner: Sgd | Adam, num_steps: int) -> Scheduled:
    """Return an optimiser whose rate falls along half a cosine to 0, and is there after so many steps."""
    choice = {"name": "cosine", "by": "step", "params": {"total_iters": max(1, num_steps)}}
    return Scheduled(inner, (ScheduleChoice.model_validate(choice),))


def innermost(optimiser: Optimiser) -> Optimiser:
    """Return the optimiser without clipping and schedules."""
    while isinstance(optimiser, Clipped | Scheduled):
        optimiser = optimiser.inner
    return optimiser


def lasting(optimiser: Optimiser, num_steps: int) -> Optimiser:
    """Return the optimiser of a fit of so many steps: schedules within it that need to know are told."""
    match optimiser:
        case Scheduled() if any(one.by == "step" and one.needs_length for one in optimiser.schedules):
            return replace(optimiser, length=max(1, num_steps))
        case Clipped():
            return replace(optimiser, inner=lasting(optimiser.inner, num_steps))
    return optimiser


def keep(names: Sequence[str], state: OptimiserState) -> dict[str, Tensor]:
    """Return the tensors of a state by ``slot/parameter``; empty where there is nothing to go on from."""
    return {
        f"{slot}/{name}": tensor
        for slot, tensors in state.slots.items()
        for name, tensor in zip(names, tensors, strict=True)
        if tensor is not None
    }


def resume(optimiser: Optimiser, params: Mapping[str, Tensor], kept: Mapping[str, Tensor]) -> OptimiserState:
    """Return the state that goes on from what was kept; a ValueError if that does not fit."""
    state = optimiser.start(list(params.values()))
    wanted = {
        f"{slot}/{name}": param if tensor is None else tensor
        for slot, tensors in state.slots.items()
        for (name, param), tensor in zip(params.items(), tensors, strict=True)
    }
    for name in sorted({*wanted, *kept}):
        if (has := _form(kept.get(name))) != (needs := _form(wanted.get(name))):
            raise ValueError(
                f"this optimiser cannot go on from what was kept: {name!r} is {has}, and it has {needs}. "
                "All fits of one name have the same kind of optimiser: give this one another name"
            )
    # Counts of steps are on the CPU wherever the parameters are.
    for slot in state.slots:
        state.slots[slot] = [kept[f"{slot}/{name}"].to(wanted[f"{slot}/{name}"].device) for name in params]
    return state


def _form(tensor: Tensor | None) -> str:
    return "no such tensor" if tensor is None else f"{list(tensor.shape)} of {tensor.dtype}"
