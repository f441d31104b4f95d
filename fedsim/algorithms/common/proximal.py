"""The proximal term of FedProx, which holds a model near another one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedsim.engine.losses import Extras, LiveModel


@dataclass(frozen=True, slots=True)
class Proximal:
    """Adds ``mu (w - w_global)`` to the gradient, outside autograd, so ``mu = 0`` adds exact zeros."""

    mu: float
    is_elementwise: ClassVar[bool] = True

    def __call__(self, model: LiveModel, gradients: list[Tensor], extras: Extras) -> list[Tensor]:
        """Return the corrected gradients."""
        anchor = extras["anchor"]
        return [
            gradient + self.mu * (param - anchor[name])
            for gradient, (name, param) in zip(gradients, model.params.items(), strict=True)
        ]
