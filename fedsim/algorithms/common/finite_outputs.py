"""Models whose parameters and outputs are finite (specification 3.5, E9).

An update may be finite while its outputs overflow, as with weights of 1e30. Such a model spoils every mean
that it is in. So servers that ask models about public samples leave it out before they take a mean, and
discard a model that diverged in training at the server.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedsim.algorithms.base import Replies
from fedsim.algorithms.contexts import ServerContext
from fedsim.params import Array, Model
from fedsim.wire import ModelUpdate


async def logits_of_finite(server: ServerContext, models: Sequence[tuple[int, Model]]) -> dict[int, Array]:
    """Return logits ``[p, N]`` on all public samples by place, of the models for which they are finite."""
    everything = server.public(np.arange(server.num_public))
    logits = await server.predict_each([model for _, model in models], everything)
    finite = {place: values for place, values in enumerate(logits) if np.isfinite(values).all()}
    for place, (client, _) in enumerate(models):
        if place not in finite:
            server.warn("model left out", client=client, reason="its outputs are not finite")
    return finite


async def finite_replies(
    server: ServerContext, replies: Replies[ModelUpdate]
) -> tuple[Replies[ModelUpdate], list[Array]]:
    """Return the replies whose models have finite outputs, and their logits ``[p, N]``."""
    logits = await logits_of_finite(server, [(reply.client, reply.message.model) for reply in replies])
    return [replies[place] for place in logits], list(logits.values())


def unless_diverged(server: ServerContext, trained: Model, former: Model) -> Model:
    """Return the trained model, or the former one with a warning if it has diverged."""
    if trained.is_finite():
        return trained
    server.warn("training at the server diverged", architecture=trained.architecture, instead="former model")
    return former
