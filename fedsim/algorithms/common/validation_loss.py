"""Choosing by validation: a model's loss on what a client has kept apart for it.

A client without validation samples falls back on its training samples, and says so in the log (specification
3.5, E11).
"""

from __future__ import annotations

from math import inf, isnan

from fedsim.algorithms.contexts import ClientContext
from fedsim.data import Split
from fedsim.params import Model


async def validation_loss(client: ClientContext, model: Model, split: Split = "val") -> float:
    """Return a model's mean loss on the client's validation samples; infinite where it is no number.

    Takes the client's time. Another ``split`` measures on that instead.
    """
    if not client.num_samples(split):
        client.warn("no validation samples", instead="training loss")
        split = "train"
    loss = (await client.evaluate(model, client.own(split))).loss
    return inf if isnan(loss) else loss
