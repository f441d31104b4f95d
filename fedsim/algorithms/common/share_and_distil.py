"""Rounds in which clients share predictions, then distil what the server makes of them.

The server names public samples and the cohort predicts them (*share*). Those who replied get the server's
values on the same samples, and learn from them (*distil*). They train on their own samples before the share
or after the distillation, and are measured after the last step. p: samples, N: classes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

import numpy as np
from typing_extensions import TypeVar

from fedsim.algorithms.base import Algorithm, Exchange, Exchanges, Replies, broadcast
from fedsim.algorithms.common.initial_own_model import OwnModelConfig, initial_own_model
from fedsim.algorithms.common.public_predictions import Announced, announce
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.engine.jobs import Samples
from fedsim.params import Array, Model
from fedsim.wire import Form, LogitsDown, LogitsUp, PublicBatch, PublicData, indices_digest


class ShareAndDistilConfig(OwnModelConfig):
    """The order of a round, and how clients' models start."""

    order: Literal["distill_first", "train_first"] = "distill_first"
    """Predict, distil, train, so that clients are measured after training, and only those train whose
    predictions have arrived; or train, predict, distil, and be measured after the distillation."""


@dataclass(frozen=True, slots=True)
class ServerState:
    """What the server holds between the two exchanges of a round; the base of such states.

    Attributes:
        positions: The round's public samples, int64 ``[p]``; after the share, those with any prediction.
        asked: How many samples the cohort was asked about.
    """

    positions: Array = field(default_factory=partial(np.empty, 0, np.int64))
    asked: int = 0

    def message(self, values: Array, form: Form, temperature: float) -> LogitsDown:
        """Return the message with values ``[p, N]``; it names the samples if some were left out."""
        named = None if len(self.positions) == self.asked else self.positions
        digest = indices_digest(self.positions)
        return LogitsDown(values, form=form, temperature=temperature, indices_digest=digest, indices=named)


@dataclass(frozen=True, slots=True)
class ClientState:
    """What a client keeps.

    Attributes:
        model: Its own model, which never travels.
        announced: The public samples of its last share, until it has learned from them; None otherwise.
    """

    model: Model
    announced: Announced | None = None


G = TypeVar("G", bound=ShareAndDistilConfig)
S = TypeVar("S", bound=ServerState)


class ShareAndDistil(Algorithm[G, S, ClientState]):
    """Rounds with both exchanges, over public samples drawn anew."""

    mixed_architectures = True
    needs_public = True

    @property
    def exchanges(self) -> Exchanges[S, ClientState]:
        """Share, then distil with those who replied."""
        share = Exchange(
            "share",
            instruct=self.instruct_share,
            local=self.local_share,
            merge=self.merge_share,
            reply=LogitsUp,
        )
        distil = Exchange("distil", instruct=self.instruct_distil, local=self.local_distil, who="answered")
        return (share, distil)

    @abstractmethod
    def drawn(self, server: ServerContext) -> Array:
        """Return the round's public samples, int64 ``[p]``."""

    @abstractmethod
    async def predicted(self, client: ClientContext, model: Model, announced: Announced) -> LogitsUp:
        """Return the client's message: its predictions on the samples."""

    @abstractmethod
    async def distilled(self, client: ClientContext, model: Model, samples: Samples, values: Array) -> Model:
        """Return the client's model, trained on the server's values ``[p, N]``."""

    async def trained(self, client: ClientContext, model: Model) -> Model:
        """Return the client's model, trained on its own samples."""
        return (await client.fit(model)).model

    def join(self, client: ClientContext) -> ClientState:
        """Begin with the start values of the client's architecture."""
        return ClientState(initial_own_model(client, self.config))

    async def instruct_share(
        self, server: ServerContext, state: S, cohort: Sequence[int]
    ) -> tuple[S, Mapping[int, PublicBatch | PublicData]]:
        """Draw the round's public samples and announce them."""
        positions = self.drawn(server)
        state = replace(state, positions=positions, asked=len(positions))
        return state, broadcast(cohort, announce(server, positions))

    async def local_share(
        self, client: ClientContext, state: ClientState, message: PublicBatch | PublicData
    ) -> tuple[ClientState, LogitsUp]:
        """Train, unless that comes last, and send predictions on the samples."""
        model, announced = state.model, Announced.of(message)
        if self.config.order == "train_first":
            model = await self.trained(client, model)
        return ClientState(model, announced), await self.predicted(client, model, announced)

    @abstractmethod
    async def merge_share(self, server: ServerContext, state: S, replies: Replies[LogitsUp]) -> S:
        """Merge the predictions."""

    @abstractmethod
    async def instruct_distil(
        self, server: ServerContext, state: S, cohort: Sequence[int]
    ) -> tuple[S, Mapping[int, LogitsDown]]:
        """Send the values to learn from."""

    async def local_distil(
        self, client: ClientContext, state: ClientState, message: LogitsDown
    ) -> tuple[ClientState, None]:
        """Learn from the server's values, unless they are on other samples; train, if that comes last."""
        samples = None if state.announced is None else state.announced.samples_of(message)
        if samples is None:
            return state, None
        model = await self.distilled(client, state.model, samples, message.values)
        if self.config.order == "distill_first":
            model = await self.trained(client, model)
        return ClientState(model), None
