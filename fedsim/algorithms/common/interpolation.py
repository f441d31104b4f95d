"""Models between two models: means of a client's own model and another, and the loss there.

Where the parameters of two models are mixed, running statistics are mixed with the same weights
(specification 3.1); where their outputs are, each keeps its own.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from fedsim.engine.losses import Batch, LiveModel, label_loss
from fedsim.params import Model, mean_model


def between(own: Model, other: Model, strength: float) -> Model:
    """Return ``own + strength (other - own)``, buffers included; exact at strengths 0 and 1."""
    if strength in (0, 1):
        return other if strength else own
    return mean_model([own, other], [1 - strength, strength])


def loss_between(
    model: LiveModel, other: Mapping[str, Tensor], share: Tensor | float, batch: Batch
) -> Tensor:
    """Return the loss of ``share * model + (1 - share) * other``; gradients flow to model and share."""
    # Laid out as the model's own parameters, since kernels round otherwise in another layout.
    mixture = {
        name: torch.zeros_like(param).add_(share * param).add_((1 - share) * other[name])
        for name, param in model.params.items()
    }
    return label_loss(model.at(mixture, moves_buffers=True)(batch.x), batch.labels)
