"""What a reply has to be before any hook merges it, and a state after it (specification 3.5, E9)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedsim.algorithms.base import Algorithm, Exchange, Reply
from fedsim.algorithms.contexts import ServerContext
from fedsim.errors import JobError, MergeError
from fedsim.runtime.hook_results import called, merged_state
from fedsim.runtime.message_codecs import Unreadable
from fedsim.runtime.parts import Parts
from fedsim.runtime.purity import unchanged
from fedsim.runtime.server.non_finite import LEAVES_RANGE, non_finite, spoiled
from fedsim.runtime.server.open_dispatches import Alike
from fedsim.runtime.told_losses import ToldLoss


class Vetting:
    """Says which replies of an exchange cannot be merged.

    A reply is of the exchange's kind and finite; it is based on no more training samples than its client has,
    for that number is its weight in means; and the algorithm has nothing against it.
    """

    def __init__(self, parts: Parts, server: ServerContext, state: Any, exchange: Exchange) -> None:
        self._parts, self._server, self._state, self._exchange = parts, server, state, exchange
        self._knows_forms_alone = type(parts.algorithm).vet is Algorithm.vet
        self._accepted: set[Alike] = set()

    def misfit(self, reply: Reply, like: Alike | None = None) -> str | None:
        """Return why a reply cannot be merged, or None.

        Args:
            reply: The reply.
            like: What it has in common with others; None where it has nothing.
        """
        if like is not None and like in self._accepted:
            return None if like.are_in_range else non_finite(reply.message)
        fault = self._misfit(reply)
        if fault is None and like is not None and self._knows_forms_alone and reply.message is not None:
            self._accepted.add(like)
        return fault

    def _misfit(self, reply: Reply) -> str | None:
        message, exchange = reply.message, self._exchange
        if isinstance(message, Unreadable):
            return message.why
        if not isinstance(message, exchange.reply or type(None)):
            came = "no frame" if message is None else f"a frame of kind {message.KIND!r}"
            wanted = "no frame" if exchange.reply is None else f"one of kind {exchange.reply.KIND!r}"
            return f"{came} where {wanted} belongs"
        if message is None:
            return None
        if (fault := non_finite(message)) is not None:
            return fault
        if isinstance(message, ToldLoss):  # no business of the algorithm's
            return None
        stated = getattr(message, "num_samples", None)
        if isinstance(stated, int):
            held = self._parts.data.num_samples(reply.client, "train")
            if not 1 <= stated <= held:
                return f"num_samples is {stated}, not from 1 to the {held} training samples of the client"
        with unchanged(self._parts.verify, "vet", self._state, reply):
            return self._parts.algorithm.vet(self._server, self._state, reply)


async def merged(
    parts: Parts, server: ServerContext, state: Any, exchange: Exchange, replies: Sequence[Reply]
) -> Any:
    """Return the server's state after the merge of an exchange.

    Raises:
        MergeError: It has left the finite range, in arithmetic or in what it returns.
    """
    if exchange.merge is None:
        return state
    with unchanged(parts.verify, f"merge_{exchange.name}", state, replies):
        try:
            after = merged_state(exchange.merge, await called(exchange.merge, server, state, replies), state)
            fault = spoiled(after, state)
        except (ArithmeticError, JobError) as error:
            # What Python's own numbers raise where NumPy's become infinite.
            cause = error.__cause__ if isinstance(error, JobError) else error
            if not isinstance(cause, ArithmeticError):
                raise
            fault = f"{type(cause).__name__}: {cause}"
    if fault is not None:
        raise MergeError(f"the merge of exchange {exchange.name!r} {LEAVES_RANGE}: {fault}")
    return after
