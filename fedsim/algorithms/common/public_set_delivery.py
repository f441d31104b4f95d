"""Handing out the public set: once, before the first round, where the server alone holds it.

For algorithms whose own messages refer to public samples by position. The frames count as data. Where clients
hold the set from the start nobody is asked and nothing is sent. A client that its frame does not reach has no
public samples in this run: it goes on training alone (specification 3.5, E10).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from typing_extensions import TypeVar

from fedsim.algorithms.base import Algorithm, C, Exchange, Exchanges, Replies, S, broadcast
from fedsim.algorithms.common import public_samples
from fedsim.algorithms.common.public_samples import Sent
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.engine.jobs import PublicSamples, Samples
from fedsim.params import Array
from fedsim.wire import LogitsUp, PublicBatch, PublicData


@dataclass(frozen=True, slots=True)
class Receiver:
    """A client that may have been sent the public set; the base of such clients' states.

    Attributes:
        received: The samples sent, as they came; None where none were.
    """

    received: Sent | PublicSamples | None


H = TypeVar("H", bound=Receiver, default=Any)


class HandingOut(Algorithm[C, S, H]):
    """Hands the public set out if need be; then clients train and send predictions (:meth:`train`)."""

    @property
    def exchanges(self) -> Exchanges[S, H]:
        """Hand the public set out; train."""
        hand_out = Exchange(
            "hand_out",
            instruct=self.instruct_hand_out,
            local=self.local_hand_out,
            when="opening",
            who="all",
        )
        train = Exchange("train", instruct=self.send, local=self.train, merge=self.merge, reply=LogitsUp)
        return (hand_out, train)

    @abstractmethod
    async def send(
        self, server: ServerContext, state: S, cohort: Sequence[int]
    ) -> tuple[S, Mapping[int, Any]]:
        """Make the messages of a round."""

    @abstractmethod
    async def train(self, client: ClientContext, state: H, message: Any) -> tuple[H, LogitsUp]:
        """Train, and predict public samples."""

    @abstractmethod
    async def merge(self, server: ServerContext, state: S, replies: Replies[LogitsUp]) -> S:
        """Take up what clients predict."""

    def handed_out(self, server: ServerContext) -> Array:
        """Return the positions of the samples that clients will need, int64 ``[p]``: 0 to p - 1."""
        return np.arange(server.num_public)

    async def instruct_hand_out(
        self, server: ServerContext, state: S, cohort: Sequence[int]
    ) -> tuple[S, Mapping[int, PublicBatch | PublicData]]:
        """Send everyone the samples, unless clients hold them."""
        if server.public_at_clients:
            return state, {}
        return state, broadcast(cohort, public_samples.announce(server, self.handed_out(server)))

    async def local_hand_out(
        self, client: ClientContext, state: H, message: PublicBatch | PublicData
    ) -> tuple[H, None]:
        """Keep them."""
        return replace(state, received=public_samples.announced(message)), None


def held(client: ClientContext, state: Receiver, positions: Array) -> Samples | None:
    """Return public samples for jobs of the client, or None where it has none."""
    if client.public_at_clients:
        return client.public(positions)
    if state.received is None:
        return None
    return public_samples.samples_of(public_samples.chosen(state.received, positions))
