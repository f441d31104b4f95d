"""One merge: what comes out of it is taken only where it is finite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedsim.algorithms.base import Exchange, Reply
from fedsim.algorithms.contexts import ServerContext
from fedsim.errors import JobError, MergeError
from fedsim.runtime.parts import Parts
from fedsim.runtime.purity import unchanged
from fedsim.runtime.server.non_finite import spoiled


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
            after = await exchange.merge(server, state, replies)
            fault = spoiled(after, state)
        except (ArithmeticError, JobError) as error:
            # What Python's own numbers raise where NumPy's become infinite.
            cause = error.__cause__ if isinstance(error, JobError) else error
            if not isinstance(cause, ArithmeticError):
                raise
            fault = f"{type(cause).__name__}: {cause}"
    if fault is not None:
        raise MergeError(f"the merge of exchange {exchange.name!r} leaves the finite range: {fault}")
    return after
