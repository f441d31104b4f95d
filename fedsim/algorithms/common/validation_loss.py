"""Choosing by validation: a model's loss on what a client has kept apart for it.

A client without validation samples falls back on its training samples, and says so in the log (specification
3.5, E11).
"""

from __future__ import annotations

from math import inf, isnan

from fedsim.algorithms.contexts import ClientContext
from fedsim.data import Split
from fedsim.params import Model


async def validation_loss(client: ClientContext, model: Model) -> float:
    """Return a model's mean loss on the client's validation samples; infinite where it is no number.

    Takes the client's time.
    """
    if not client.num_samples("val"):
        client.warn("no validation samples", instead="training loss")
    return await loss_on(client, model, "val" if client.num_samples("val") else "train")


async def loss_on(client: ClientContext, model: Model, split: Split) -> float:
    """Return a model's mean loss on one of the client's splits; infinite where it is no number.

    Takes the client's time.
    """
    loss = (await client.evaluate(model, client.own(split))).loss
    return inf if isnan(loss) else loss
