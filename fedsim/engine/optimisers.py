"""Optimisers as frozen settings with explicit state, over torch's functional kernels.

An optimiser's state lives in the job that uses it; ``update`` writes into tensors that the job owns. What is
to go on in another job leaves as named tensors (``keep``) and comes back as such (``resume``), from where it
goes on bit for bit. The kernels work element by element, so they serve stacked parameters of many clients as
they are; :class:`Clipped`, which looks at the whole gradient, serves one model.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
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

    def keep(self, names: Sequence[str], state: OptimiserState) -> Mapping[str, Tensor]:
        """Return what a state holds, by ``slot/parameter``; the names are in the parameters' order.

        Empty where there is nothing to go on from. The tensors are the state's own.
        """

    def resume(self, params: Mapping[str, Tensor], kept: Mapping[str, Tensor]) -> OptimiserState:
        """Return the state that goes on from what was kept; it owns the tensors from now on.

        Raises:
            ValueError: That was kept by another optimiser, or for other parameters.
        """


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

    def keep(self, names: Sequence[str], state: OptimiserState) -> Mapping[str, Tensor]:
        """Return the momentum buffers; nothing without momentum or before the first step."""
        assert isinstance(state, SgdState)  # noqa: S101 - our own bug, not a user's
        pairs = zip(names, state.momentum, strict=True)
        return {f"momentum/{name}": buffer for name, buffer in pairs if buffer is not None}

    def resume(self, params: Mapping[str, Tensor], kept: Mapping[str, Tensor]) -> SgdState:
        """Return a state with these buffers.

        Raises:
            ValueError: They are no momentum of these parameters.
        """
        if not self.momentum:
            _slots(params, kept)
            return self.start(list(params.values()))
        (momentum,) = _slots(params, kept, "momentum")
        return SgdState([*momentum])


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

    def keep(self, names: Sequence[str], state: OptimiserState) -> Mapping[str, Tensor]:
        """Return the moments, and the step count once, since all parameters have made the same steps."""
        assert isinstance(state, AdamState)  # noqa: S101 - our own bug, not a user's
        first = {f"first/{name}": moment for name, moment in zip(names, state.first, strict=True)}
        second = {f"second/{name}": moment for name, moment in zip(names, state.second, strict=True)}
        return {**first, **second, "steps": state.steps[0]}

    def resume(self, params: Mapping[str, Tensor], kept: Mapping[str, Tensor]) -> AdamState:
        """Return a state with these moments, and as many steps behind it.

        Raises:
            ValueError: They are no moments of these parameters.
        """
        first, second = _slots(params, kept, "first", "second", also="steps")
        # Counts are on the CPU wherever the parameters are, each in a place of its own, as at the start.
        steps = kept["steps"].cpu()
        return AdamState(first, second, [steps.clone() for _ in params])


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

    def keep(self, names: Sequence[str], state: OptimiserState) -> Mapping[str, Tensor]:
        """Return what the inner state holds."""
        return self.inner.keep(names, state)

    def resume(self, params: Mapping[str, Tensor], kept: Mapping[str, Tensor]) -> OptimiserState:
        """Return the inner state.

        Raises:
            ValueError: As the inner optimiser.
        """
        return self.inner.resume(params, kept)


@dataclass(slots=True)
class CosineState:
    """The inner optimiser's state and how many steps were done."""

    inner: OptimiserState
    num_done: int = 0


@dataclass(frozen=True, slots=True)
class Cosine:
    """An optimiser whose learning rate falls along half a cosine, from its own to 0 (Loshchilov and Hutter).

    The schedule is that of one fit: where an optimiser goes on in another one, the inner state does, and the
    rate begins anew.

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

    def keep(self, names: Sequence[str], state: OptimiserState) -> Mapping[str, Tensor]:
        """Return what the inner state holds; how far the schedule was is forgotten."""
        assert isinstance(state, CosineState)  # noqa: S101 - our own bug, not a user's
        return self.inner.keep(names, state.inner)

    def resume(self, params: Mapping[str, Tensor], kept: Mapping[str, Tensor]) -> CosineState:
        """Return the inner state, at the beginning of the schedule.

        Raises:
            ValueError: As the inner optimiser.
        """
        return CosineState(self.inner.resume(params, kept))


def _slots(
    params: Mapping[str, Tensor], kept: Mapping[str, Tensor], *slots: str, also: str | None = None
) -> list[list[Tensor]]:
    """Return the tensors of each slot in the parameters' order; ``also`` names one scalar beside them."""
    wanted: dict[str, tuple[torch.Size, torch.dtype]] = {
        f"{slot}/{name}": (p.shape, p.dtype) for slot in slots for name, p in params.items()
    }
    if also is not None:
        wanted[also] = torch.Size(), torch.float32
    found = {name: (tensor.shape, tensor.dtype) for name, tensor in kept.items()}
    if found != wanted:
        odd = min(name for name in {**wanted, **found} if found.get(name) != wanted.get(name))
        raise ValueError(
            f"this optimiser cannot go on from what was kept: {odd!r} is {_told(found.get(odd))}, and it has "
            f"{_told(wanted.get(odd))}. All fits of one name have the same kind of optimiser: give this one "
            "another name"
        )
    return [[kept[f"{slot}/{name}"] for name in params] for slot in slots]


def _told(form: tuple[torch.Size, torch.dtype] | None) -> str:
    return "no such tensor" if form is None else f"{list(form[0])} of {form[1]}"
