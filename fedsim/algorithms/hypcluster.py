"""HypCluster: several global models, of which each client takes the one that suits it.

In a round clients are sent all models, train the one with the least loss on their own samples, and send it
back. The server averages the models of each cluster as FedAvg does; the clusters are nothing but these
choices, so a client may change to another in every round (specification 5.D.8). If fine-tuning is wanted,
every client trains its model on its own samples after the last round, as in FedMe's tables.

The models begin with random values, or with models that clients have trained, as in fedjax
(``fedjax/algorithms/hyp_cluster.py``, ``kmeans_init``; a variant of k-means++). Then candidates train the
first random model and send it. The first start model is that of a candidate drawn at random. Each further one
is that of the candidate whose least loss under the models chosen so far is the largest. For that each chosen
model but the last is sent to the remaining candidates, which send its loss. With m candidates and q models
this takes ``(m + (m - 1) + ... + (m - q + 1)) S`` bytes down, and ``m S`` and the losses up. Unlike in fedjax
nobody is chosen twice: of two equal models clients would take the first alone. A candidate that does not
answer drops out. Where none is left, a model has random values.

Mansour, Mohri, Ro, Suresh: Three Approaches for Personalization with Applications to Federated Learning, 2020
(arXiv 2002.10619), algorithm 1.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

from pydantic import model_validator

from fedsim.algorithms.base import About, Exchange, Exchanges, Replies, broadcast
from fedsim.algorithms.common.fine_tuning import FineTuning, OptionalFineTuningConfig, validation_loss
from fedsim.algorithms.common.model_clusters import (
    ClusterUpdate,
    ModelClusters,
    ModelClustersConfig,
    Models,
    members,
)
from fedsim.algorithms.common.model_rounds import Weighting, combined, mean_of_models
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.params import Model
from fedsim.ranges import Clients
from fedsim.wire import Message, ModelBroadcast, ModelUpdate, message


class HypClusterConfig(ModelClustersConfig, OptionalFineTuningConfig):
    """HypCluster's own parameters; FedMe's tables have two clusters."""

    start: Literal["random", "kmeans"] = "random"
    """What the models begin with: random values, or models of clients that differ by their losses. A single
    model begins with random values."""
    start_clients: Clients | None = None
    """Candidates for `start = "kmeans"`, drawn at random; all clients by default."""
    weighting: Weighting = "samples"
    """What a model weighs in the mean of its cluster: its client's samples, or the same for all."""

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


@message("model_loss")
class ModelLoss(Message):
    """The loss of the received model on the client's samples; the largest float instead of NaN."""

    loss: float


@dataclass(frozen=True, slots=True)
class ChoosingState:
    """What the server holds while it chooses start models."""

    random: Models  # start models with random values
    chosen: Models = ()  # start models so far
    candidates: Mapping[int, Model] = field(default_factory=dict)  # by client, the model that it has trained
    # By client, its losses of the chosen models, as far as it has answered.
    losses: Mapping[int, tuple[float, ...]] = field(default_factory=dict)


class HypCluster(FineTuning[HypClusterConfig, Models], ModelClusters[HypClusterConfig]):
    """Hypothesis-based clustering; the server's state are its models."""

    about = About(kind="personal models", down="q S", up="S + 4", server="q models")
    messages = (*ModelClusters.messages, ModelLoss)
    discounted = "shares"
    own_aggregation = None

    @property
    def exchanges(self) -> Exchanges[Models, Any]:
        """Train; before the first round, if set, the choice of the start models, one by one."""
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
                local=self.local_validation_loss,
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
    ) -> tuple[ChoosingState, Mapping[int, ModelBroadcast]]:
        """Send the candidates the first random model."""
        count = min(self.config.start_clients or len(cohort), len(cohort))
        drawn = server.key.child("candidates").numpy().choice(cohort, count, replace=False)
        return ChoosingState(state), broadcast(sorted(drawn.tolist()), ModelBroadcast.of(state[0]))

    async def local_prepare(
        self, client: ClientContext, state: Any, message: ModelBroadcast
    ) -> tuple[Any, ModelUpdate]:
        """Train the model and send it back."""
        fitted = await client.fit(message.model, name="candidate")
        return state, ModelUpdate.of(fitted.model, num_samples=client.num_samples())

    async def merge_prepare(
        self, server: ServerContext, state: ChoosingState, replies: Replies[ModelUpdate]
    ) -> ChoosingState:
        """Store the models."""
        candidates = {reply.client: reply.message.model for reply in replies}
        return replace(state, candidates=candidates, losses=dict.fromkeys(candidates, ()))

    async def instruct_compare(
        self, server: ServerContext, state: ChoosingState, cohort: Sequence[int]
    ) -> tuple[ChoosingState | Models, Mapping[int, ModelBroadcast]]:
        """Choose a model and send it to the remaining candidates; the last choice ends it."""
        number = len(state.chosen)
        left = [client for client, losses in state.losses.items() if len(losses) == number]
        if left:
            if number == 0:
                client = int(server.key.child("first").numpy().choice(left))
            else:
                client = max(left, key=lambda candidate: min(state.losses[candidate]))  # of equals the first
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

    async def local_validation_loss(
        self, client: ClientContext, state: Any, message: ModelBroadcast
    ) -> tuple[Any, ModelLoss]:
        """Send the model's loss."""
        loss = await validation_loss(client, message.model, self.config.choose_on)
        return state, ModelLoss(min(loss, sys.float_info.max))

    async def merge_compare(
        self, server: ServerContext, state: ChoosingState, replies: Replies[ModelLoss]
    ) -> ChoosingState:
        """Store the losses."""
        losses = {reply.client: (*state.losses[reply.client], reply.message.loss) for reply in replies}
        return replace(state, losses={**state.losses, **losses})

    async def merge(self, server: ServerContext, state: Models, replies: Replies[ClusterUpdate]) -> Models:
        """Average the models of each cluster; one without members keeps its model."""
        groups = members(server, state, replies)
        return tuple(
            mean_of_models(combined(server, group, former), self.config.weighting) if group else former
            for group, former in zip(groups, state, strict=True)
        )


PLUGIN = HypCluster
