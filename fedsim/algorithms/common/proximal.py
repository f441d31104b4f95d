"""Proximal terms that hold a model near another one: explicit (FedProx, Ditto), implicit (FedAMP)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedsim.engine.losses import Extras, LiveModel


@dataclass(frozen=True, slots=True)
class Proximal:
    """Adds ``mu (w - w_global)`` to the gradient, outside autograd, so that ``mu = 0`` adds exact zeros."""

    mu: float
    is_elementwise: ClassVar[bool] = True

    def __call__(self, model: LiveModel, gradients: list[Tensor], extras: Extras) -> list[Tensor]:
        """Return the corrected gradients, in the order of the model's parameters."""
        anchor = extras["anchor"]
        return [
            gradient + self.mu * (param - anchor[name])
            for gradient, (name, param) in zip(gradients, model.params.items(), strict=True)
        ]


@dataclass(frozen=True, slots=True)
class ImplicitProximal:
    """Gives the gradient ``(g + mu (w - anchor)) / (1 + lr mu)``, with which a step of SGD is a proximal one.

    It diverges for no ``mu``. With ``mu = 0`` gradients stay as they are, bit for bit. ``lr`` is that of the
    first step; later steps with less go less far than proximal ones.
    """

    mu: float
    lr: float
    is_elementwise: ClassVar[bool] = True

    def __call__(self, model: LiveModel, gradients: list[Tensor], extras: Extras) -> list[Tensor]:
        """Return the corrected gradients, in the order of the model's parameters."""
        held = Proximal(self.mu)(model, gradients, extras)
        return [gradient / (1 + self.lr * self.mu) for gradient in held]
