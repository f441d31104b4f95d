"""Delivery of the public set: once, before round 1, if the server alone holds it.

For algorithms whose messages refer to public samples by position. The frames count as data. If clients hold
the set nothing is sent. A client that its frame does not reach has no public samples in this run: it goes on
training alone (specification 3.5, E10).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from typing_extensions import TypeVar

from fedsim.algorithms.base import Algorithm, C, Exchange, Exchanges, S, broadcast
from fedsim.algorithms.common.public_predictions import Announced, announce, restored
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.engine.compute_context import ComputeContext
from fedsim.engine.jobs import InlineSamples, Samples
from fedsim.params import Array, Model
from fedsim.wire import PublicBatch, PublicData


@dataclass(frozen=True, slots=True)
class ClientState:
    """What a client keeps.

    Attributes:
        model: Its own model, which never travels.
        received: The public samples that it was sent, by position ``[p, ...]``; None if it was sent none.
    """

    model: Model
    received: Array | None = None


P = TypeVar("P", bound=ClientState, default=Any)


class PublicSetDelivery(Algorithm[C, S, P]):
    """Sends clients the public set before round 1, if they do not hold it."""

    mixed_architectures = True
    needs_public = True

    @property
    def exchanges(self) -> Exchanges[S, P]:
        """The delivery."""
        hand_out = Exchange(
            "hand_out", instruct=self.instruct_hand_out, local=self.local_hand_out, when="opening", who="all"
        )
        return (hand_out,)

    def public_positions(self, party: ComputeContext) -> Array:
        """Return the positions of the samples for clients, int64 ``[p]``: 0 to p - 1."""
        return np.arange(party.num_public)

    async def instruct_hand_out(
        self, server: ServerContext, state: S, cohort: Sequence[int]
    ) -> tuple[S, Mapping[int, PublicBatch | PublicData]]:
        """Send all clients the samples, unless they hold them."""
        if server.public_at_clients:
            return state, {}
        return state, broadcast(cohort, self.delivery(server))

    def delivery(self, server: ServerContext) -> PublicBatch | PublicData:
        """Return the message with the samples."""
        return announce(server, self.public_positions(server))

    async def local_hand_out(
        self, client: ClientContext, state: P, message: PublicBatch | PublicData
    ) -> tuple[P, None]:
        """Store the samples as they came: one byte a number for images of eight bits."""
        return replace(state, received=Announced.of(message).values), None


def held(client: ClientContext, state: ClientState, positions: Array) -> tuple[Samples, Array]:
    """Return public samples for jobs of the client, and their positions int64 ``[p]``.

    Both are empty, with a warning, if the client does not have them.
    """
    if not client.public_at_clients and state.received is not None:
        return InlineSamples(restored(state.received[positions])), positions
    if not client.public_at_clients:
        client.warn("no public samples", instead="training alone")
        positions = positions[:0]
    return client.public(positions), positions
