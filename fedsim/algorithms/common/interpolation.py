"""Models between two models: means of a client's own model and another, and gradients there.

Where two models are mixed, running statistics are mixed with the same weights (specification 3.1).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from fedsim.engine.losses import MODEL, Batches, LiveModel, empirical_loss
from fedsim.params import Model, mean_model


def between(own: Model, other: Model, strength: float) -> Model:
    """Return ``own + strength (other - own)``, buffers included; an end exactly where strength is 0 or 1."""
    if strength in (0, 1):
        return other if strength else own
    return mean_model([own, other], [1 - strength, strength])


def slopes(model: LiveModel, batches: Batches) -> tuple[Tensor, list[Tensor]]:
    """Return a model's loss on a batch of the client's own samples, without history, and its gradients."""
    loss, params = empirical_loss({MODEL: model}, batches, {}), list(model.params.values())
    gradients = torch.autograd.grad(loss, params, allow_unused=True, materialize_grads=True)
    return loss.detach(), list(gradients)


def slopes_between(
    model: LiveModel, other: Mapping[str, Tensor], share: Tensor | float, batches: Batches
) -> tuple[Tensor, list[Tensor]]:
    """Return what :func:`slopes` returns, at ``share * model + (1 - share) * other``.

    The gradients are those by the mixture; by the model they are ``share`` times these. The parameters of the
    model are as before, and its running statistics have met the mixture's activations.
    """
    params = list(model.params.values())
    with torch.no_grad():
        kept = [param.clone() for param in params]
        for param, its in zip(params, other.values(), strict=True):
            param.mul_(share).add_((1 - share) * its)
    loss, gradients = slopes(model, batches)
    with torch.no_grad():
        for param, mine in zip(params, kept, strict=True):
            param.copy_(mine)
    return loss, gradients
