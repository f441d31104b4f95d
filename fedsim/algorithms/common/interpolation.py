"""Models between two models: means of a client's own model and another, and the loss there.

Where the parameters of two models are mixed, running statistics are mixed with the same weights
(specification 3.1); where their outputs are, each keeps its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedsim.engine.losses import (
    MODEL,
    TRAIN,
    Batch,
    Batches,
    Extras,
    LiveModel,
    Models,
    label_loss,
    serves_many,
)
from fedsim.params import Model, mean_model

OTHER = "other"
"""Name of the model that stays, or of the extra with its parameters."""


def between(own: Model, other: Model, strength: float) -> Model:
    """Return ``own + strength (other - own)``, buffers included; an end exactly where strength is 0 or 1."""
    if strength in (0, 1):
        return other if strength else own
    return mean_model([own, other], [1 - strength, strength])


def loss_between(
    model: LiveModel, other: Mapping[str, Tensor], share: Tensor | float, batch: Batch
) -> Tensor:
    """Return the loss of ``share * model + (1 - share) * other`` on a batch of labelled samples.

    Gradients flow to the model, and to the share if it is a tensor. The forward pass is the model's, so its
    running statistics are those of the mixture.
    """
    # Laid out as the model's own parameters, since kernels round otherwise in another layout.
    mixture = {
        name: torch.zeros_like(param).add_(share * param).add_((1 - share) * other[name])
        for name, param in model.params.items()
    }
    return label_loss(model.at(mixture, moves_buffers=True)(batch.x), batch.labels)


@dataclass(frozen=True, slots=True)
class AtMixture:
    """The loss of one model of a mixture; the parameters of the other are the extra ``other``.

    Attributes:
        share: What the model that moves weighs in the mixture.
    """

    share: float

    def __call__(self, models: Models, batches: Batches, extras: Extras) -> Tensor:
        """Return the loss of the mixture."""
        return loss_between(models[MODEL], extras[OTHER], self.share, batches[TRAIN])


@dataclass(frozen=True, slots=True)
class OfMixedOutputs:
    """The loss of the mixed outputs of the model and of the model ``other``, which is not trained.

    Attributes:
        share: What the outputs of the model that moves weigh.
    """

    share: float

    @serves_many
    def __call__(self, models: Models, batches: Batches, extras: Extras) -> Tensor:
        """Return the loss of ``share model(x) + (1 - share) other(x)``."""
        batch = batches[TRAIN]
        mixed = self.share * models[MODEL](batch.x) + (1 - self.share) * models[OTHER](batch.x)
        return label_loss(mixed, batch.labels)
