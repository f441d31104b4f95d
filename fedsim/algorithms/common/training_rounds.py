"""Rounds of one exchange: a message goes down, clients train, and their replies are merged."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, cast

from fedsim.algorithms.base import Algorithm, C, Exchange, Exchanges, P, Replies, S
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.wire import Message, ModelUpdate


class TrainingRounds(Algorithm[C, S, P]):
    """An algorithm with the exchange ``train``.

    Attributes:
        reply: What comes back.
        varying: Its fields that hold now one model of the server's and now another.
    """

    reply: ClassVar[type[Message]] = ModelUpdate

    varying: ClassVar[tuple[str, ...]] = ()

    @property
    def changes(self) -> tuple[str, ...]:
        """The fields of replies that are changes of models, and no models."""
        return ()

    @property
    def exchanges(self) -> Exchanges[S, P]:
        """One: train."""
        train = Exchange("train", instruct=self.send, local=self.train, merge=self.merge, reply=self.reply)
        return (replace(train, changes=self.changes, varying=self.varying),)

    @abstractmethod
    async def send(
        self, server: ServerContext, state: S, cohort: Sequence[int]
    ) -> tuple[S, Mapping[int, Any]]:
        """Return the server's state and what each client of the cohort is sent."""

    async def send_last(
        self, server: ServerContext, state: S, cohort: Sequence[int]
    ) -> tuple[S, Mapping[int, Any]]:
        """Send what a round begins with."""
        return await self.send(server, state, cohort)

    @abstractmethod
    async def train(self, client: ClientContext, state: P, message: Any) -> tuple[P, Any]:
        """Return the client's state and its reply."""

    @abstractmethod
    async def merge(self, server: ServerContext, state: S, replies: Replies[Any]) -> S:
        """Return the server's state after the replies."""


class OwnModelRounds(TrainingRounds[C, S, P]):
    """The same with clients' own models: a client's state is its model, or has one called ``model``."""

    send_last = Algorithm.send_last  # a client goes on with the model that it has

    def join(self, client: ClientContext) -> P:
        """Begin with the start values of the client's architecture, where the state is a model."""
        return cast(P, client.initial_model())
