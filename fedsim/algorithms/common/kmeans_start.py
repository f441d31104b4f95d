"""Start models of clusters that are clients' models, chosen before the first round by clients' losses.

This is what fedjax does (``fedjax/algorithms/hyp_cluster.py``, ``kmeans_init``), a variant of k-means++.
Candidates train the first random model and send it. The first start model is that of a candidate drawn at
random. Each further one is that of the candidate whose least loss under the models chosen so far is the
largest; for that each chosen model but the last is sent to the candidates that are left, which send its loss.
With m candidates and q models this takes ``(m + (m - 1) + ... + (m - q + 1)) S`` bytes down, and ``m S`` and
the losses up.

Decisions: nobody is chosen twice, as can happen in fedjax, since of two equal models clients would take the
first alone. Who does not answer is a candidate no longer. Where none is left, a model has random values.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self, TypeVar

from pydantic import model_validator

from fedsim.algorithms.base import Exchange, Exchanges, Replies, broadcast
from fedsim.algorithms.common.fine_tuning import validation_loss
from fedsim.algorithms.common.model_clusters import ModelClusters, ModelClustersConfig, Models
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.params import Model
from fedsim.ranges import Clients
from fedsim.wire import Message, ModelBroadcast, ModelUpdate, message


class KMeansStartConfig(ModelClustersConfig):
    """What the models begin with."""

    start: Literal["random", "kmeans"] = "random"
    """What the models begin with: random values, or models of clients that differ by their losses. A single
    model begins with random values."""
    start_clients: Clients | None = None
    """Candidates for `start = "kmeans"`, drawn at random; all clients by default."""

    @model_validator(mode="after")
    def _enough_candidates(self) -> Self:
        if self.start_clients is None:
            return self
        if self.start == "random":
            raise ValueError("start_clients belongs to start = 'kmeans': leave it out")
        if self.start_clients < self.clusters:
            raise ValueError(
                f"start_clients = {self.start_clients} for {self.clusters} clusters: give at least as many"
            )
        return self


G = TypeVar("G", bound=KMeansStartConfig)


@message("model_loss")
class ModelLoss(Message):
    """The loss of the model that came, on the client's own samples; the largest float if it is no number."""

    loss: float


@dataclass(frozen=True, slots=True)
class Choosing:
    """What the server holds while it chooses start models.

    Attributes:
        random: Start models with random values.
        chosen: Start models so far.
        candidates: By client, the model that it has trained.
        losses: By client, its loss of each chosen model, as far as it has answered.
    """

    random: Models
    chosen: Models = ()
    candidates: Mapping[int, Model] = field(default_factory=dict)
    losses: Mapping[int, tuple[float, ...]] = field(default_factory=dict)


class KMeansStart(ModelClusters[G]):
    """Adds the choice of the start models, if it is wanted."""

    messages: ClassVar[tuple[type[Message], ...]] = (*ModelClusters.messages, ModelLoss)

    @property
    def exchanges(self) -> Exchanges[Models, Any]:
        """Train; and before the first round, if it is wanted, the choice of the start models, one by one."""
        if self.config.start == "random" or self.config.clusters == 1:
            return super().exchanges
        prepare: Exchange[Any, Any, Any, Any] = Exchange(
            "prepare",
            instruct=self.instruct_prepare,
            local=self.local_prepare,
            merge=self.merge_prepare,
            when="opening",
            who="all",
            reply=ModelUpdate,
        )
        choices: list[Exchange[Any, Any, Any, Any]] = [
            Exchange(
                f"compare_{number}",
                instruct=self.instruct_compare,
                local=self.local_compare,
                merge=self.merge_compare,
                when="opening",
                who="all",
                reply=ModelLoss,
            )
            for number in range(self.config.clusters)
        ]
        return (prepare, *choices, *super().exchanges)

    async def instruct_prepare(
        self, server: ServerContext, state: Models, cohort: Sequence[int]
    ) -> tuple[Choosing, Mapping[int, ModelBroadcast]]:
        """Send the candidates the first random model."""
        count = min(self.config.start_clients or len(cohort), len(cohort))
        drawn = server.key.child("candidates").numpy().choice(cohort, count, replace=False)
        return Choosing(state), broadcast(sorted(drawn.tolist()), ModelBroadcast.of(state[0]))

    async def local_prepare(
        self, client: ClientContext, state: Any, message: ModelBroadcast
    ) -> tuple[Any, ModelUpdate]:
        """Train it and send it back."""
        fitted = await client.fit(message.model, name="candidate")
        return state, ModelUpdate.of(fitted.model, num_samples=client.num_samples())

    async def merge_prepare(
        self, server: ServerContext, state: Choosing, replies: Replies[ModelUpdate]
    ) -> Choosing:
        """Keep the models that came."""
        candidates = {reply.client: reply.message.model for reply in replies}
        return replace(state, candidates=candidates, losses=dict.fromkeys(candidates, ()))

    async def instruct_compare(
        self, server: ServerContext, state: Choosing, cohort: Sequence[int]
    ) -> tuple[Choosing | Models, Mapping[int, ModelBroadcast]]:
        """Choose a model, and send it to the candidates that are left; with the last one, end the choice."""
        number = len(state.chosen)
        left = [client for client, losses in state.losses.items() if len(losses) == number]
        if left:
            if number == 0:
                client = int(server.key.child("first").numpy().choice(left))
            else:
                client = max(left, key=lambda one: min(state.losses[one]))  # of equals the first
            server.note("start model", model=number, client=client)
            left.remove(client)
            model = state.candidates[client]
        else:
            server.warn("no candidate left", model=number, instead="random values")
            model = state.random[number]
        chosen = (*state.chosen, model)
        if len(chosen) == len(state.random):
            return chosen, {}
        return replace(state, chosen=chosen), broadcast(left, ModelBroadcast.of(model))

    async def local_compare(
        self, client: ClientContext, state: Any, message: ModelBroadcast
    ) -> tuple[Any, ModelLoss]:
        """Send its loss."""
        loss = await validation_loss(client, message.model, self.config.choose_on)
        return state, ModelLoss(min(loss, sys.float_info.max))

    async def merge_compare(
        self, server: ServerContext, state: Choosing, replies: Replies[ModelLoss]
    ) -> Choosing:
        """Note the losses."""
        told = {reply.client: (*state.losses[reply.client], reply.message.loss) for reply in replies}
        return replace(state, losses={**state.losses, **told})
