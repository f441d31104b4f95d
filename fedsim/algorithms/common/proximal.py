"""The proximal term of FedProx, which holds a model near another one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from fedsim.engine.jobs import Extra
from fedsim.engine.losses import Extras, LiveModel
from fedsim.engine.steps import Descent
from fedsim.params import Model


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


def held_near(anchor: Model, mu: float) -> dict[str, Any]:
    """Return the arguments of a fit with the proximal term ``mu/2 ||w - anchor||^2``."""
    return {"step": Descent(correct=Proximal(mu)), "extras": {"anchor": Extra(anchor.params)}}
