"""Models whose numbers and outputs are finite (specification 3.5, E9).

An update may be finite and its outputs not: with weights of 1e30 a forward pass overflows. Such a model
spoils every mean that it is in, and what is learned from that mean; so servers that ask models about public
samples leave it out before they take any mean, and give up what has diverged at the server itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedsim.algorithms.contexts import ServerContext
from fedsim.params import Array, Model


async def logits_of_finite(
    server: ServerContext, owners: Sequence[int], models: Sequence[Model]
) -> dict[int, Array]:
    """Ask models about all public samples; takes the server's time.

    Args:
        server: Who asks.
        owners: The client of each model, for the log.
        models: The models.

    Returns:
        By place among the models, in their order, the logits float32 ``[p, N]`` of those whose are all
        finite; the others are noted in the log.
    """
    logits = await server.predict_each(models, server.public(np.arange(server.num_public)))
    finite: dict[int, Array] = {}
    for place, (owner, values) in enumerate(zip(owners, logits, strict=True)):
        if np.isfinite(values).all():
            finite[place] = values
        else:
            server.warn("model left out", client=owner, reason="its outputs are not finite")
    return finite


def taken_up(server: ServerContext, trained: Model, former: Model) -> Model:
    """Return what the server has trained, or, if that has diverged, the former model, and say so."""
    if trained.is_finite():
        return trained
    server.warn("training at the server diverged", architecture=trained.architecture, instead="former model")
    return former
