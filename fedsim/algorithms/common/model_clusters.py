"""Several global models, one for each cluster of clients: the round of HypCluster and IFCA.

The server sends every client all its models. The client trains the one with the least loss on its own
samples, the first on ties, and sends it with its number. A model that no client chose stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar

from fedsim.algorithms.base import Predictor, Predictors, Replies, Reply, broadcast
from fedsim.algorithms.common.fine_tuning import validation_loss
from fedsim.algorithms.common.model_set_message import ModelSet
from fedsim.algorithms.common.training_rounds import TrainingRounds
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.config import Config
from fedsim.params import Model
from fedsim.ranges import Clients
from fedsim.wire import Message, ModelUpdate, message

Models: TypeAlias = tuple[Model, ...]  # the server's state: the model of each cluster


class ModelClustersConfig(Config):
    """How many models there are, and how clients choose."""

    clusters: Clients = 2
    """Models of the server, q, each of which begins with values of its own."""
    choose_on: Literal["train", "val"] = "train"
    """Samples on which a client compares the models: those that it trains on, or its validation samples."""


G = TypeVar("G", bound=ModelClustersConfig)


@message("cluster_update")
class ClusterUpdate(ModelUpdate):
    """What a client sends."""

    cluster: int  # which of the models it has trained, from 0


class ModelClusters(TrainingRounds[G, Models, Any]):
    """Rounds in which each client trains the model that suits it best; a subclass merges them."""

    messages: ClassVar[tuple[type[Message], ...]] = (ModelSet, ClusterUpdate)
    reply = ClusterUpdate
    varying = ("params",)

    def start(self, server: ServerContext) -> Models:
        """Begin with different start values of the server's architecture, others in each round."""
        q = self.config.clusters
        return tuple(server.initial_model(variant=server.round * q + number) for number in range(q))

    async def send(
        self, server: ServerContext, state: Models, cohort: Sequence[int]
    ) -> tuple[Models, Mapping[int, Any]]:
        """Send all models to every client."""
        return state, broadcast(cohort, ModelSet.of(dict(enumerate(state))))

    def received(self, client: ClientContext, message: Any) -> Models:
        """Return the models that a message carries."""
        return tuple(message.models.values())

    async def choice(self, party: ClientContext, models: Models) -> int:
        """Return the number of the model with the least loss on the client's samples, the first on ties."""
        if len(models) == 1:
            return 0
        losses = [await validation_loss(party, model, self.config.choose_on) for model in models]
        return losses.index(min(losses))

    async def own_model(self, client: ClientContext, state: Any, message: Any) -> Model:
        """Return the model that suits the client best."""
        models = self.received(client, message)
        return models[await self.choice(client, models)]

    async def train(self, client: ClientContext, state: Any, message: Any) -> tuple[Any, ClusterUpdate]:
        """Choose a model, train it and send it back."""
        models = self.received(client, message)
        chosen = await self.choice(client, models)
        trained = await self.trained(client, models[chosen])
        return state, ClusterUpdate(
            trained.architecture, trained.params, trained.buffers, client.num_samples(), chosen
        )

    async def trained(self, client: ClientContext, model: Model) -> Model:
        """Return the model to send for the chosen one."""
        return (await client.fit(model)).model

    def vet(self, server: ServerContext, state: Models, reply: Reply) -> str | None:
        """Reject a model of another architecture, and an unknown cluster."""
        update = reply.message
        if isinstance(update, ClusterUpdate) and not 0 <= update.cluster < len(state):
            return f"cluster {update.cluster}, and there are {len(state)} from 0 on"
        return super().vet(server, state, reply)

    async def models_of(self, observer: ClientContext, server_state: Models, client_state: Any) -> Predictors:
        """Return the model that suits the client best now."""
        return {"personal": Predictor(server_state[await self.choice(observer, server_state)])}


def members(server: ServerContext, state: Models, replies: Replies[ClusterUpdate]) -> list[list[Reply]]:
    """Return the replies of each cluster, and log their numbers."""
    groups: list[list[Reply]] = [[] for _ in state]
    for reply in replies:
        groups[reply.message.cluster].append(reply)
    server.note("cluster sizes", sizes=[len(group) for group in groups])
    return groups
