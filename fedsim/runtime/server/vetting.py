"""What a reply has to be before any hook merges it (specification 3.5, E9)."""

from __future__ import annotations

from typing import Any

from fedsim.algorithms.base import Exchange, Reply
from fedsim.algorithms.contexts import ServerContext
from fedsim.runtime.parts import Parts
from fedsim.runtime.purity import unchanged
from fedsim.runtime.server.non_finite import non_finite


def misfit(parts: Parts, server: ServerContext, state: Any, exchange: Exchange, reply: Reply) -> str | None:
    """Return why a reply cannot be merged, or None.

    It is of the exchange's kind and finite; it is based on no more training samples than its client has, for
    that number is its weight in means; and the algorithm has nothing against it.
    """
    message = reply.message
    if not isinstance(message, exchange.reply or type(None)):
        came = "no frame" if message is None else f"a frame of kind {message.KIND!r}"
        wanted = "no frame" if exchange.reply is None else f"one of kind {exchange.reply.KIND!r}"
        return f"{came} where {wanted} belongs"
    if message is None:
        return None
    if (fault := non_finite(message)) is not None:
        return fault
    stated = getattr(message, "num_samples", None)
    if isinstance(stated, int):
        held = parts.data.num_samples(reply.client, "train")
        if not 1 <= stated <= held:
            return f"num_samples is {stated}, not from 1 to the {held} training samples of the client"
    with unchanged(parts.verify, "vet", state, reply):
        return parts.algorithm.vet(server, state, reply)
