"""Clients train a model that the server sends them and send it back whole, as in FedAvg; means of models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeVar, cast

from fedsim.algorithms.base import C, Predictor, Predictors, Replies, Reply, S
from fedsim.algorithms.common.training_rounds import TrainingRounds
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.params import Model, mean_model
from fedsim.wire import ModelBroadcast, ModelUpdate

M = TypeVar("M", bound=ModelUpdate)

Weighting = Literal["samples", "uniform"]


class ModelTraining(TrainingRounds[C, S, Any]):
    """One exchange, in which every client trains the model that the server has for it.

    By default that is one global model: the server's state is a model, or has one called ``model``.
    """

    def start(self, server: ServerContext) -> S:
        """Begin with the start values of the server's architecture, where the state is a model."""
        return cast(S, server.initial_model())

    def model_for(self, server: ServerContext, state: S, client: int) -> Model:
        """Return the model to send to a client."""
        return _model(state)

    async def send(
        self, server: ServerContext, state: S, cohort: Sequence[int]
    ) -> tuple[S, Mapping[int, ModelBroadcast]]:
        """Send its model to every client."""
        return state, broadcasts({client: self.model_for(server, state, client) for client in cohort})

    def training_options(self, client: ClientContext, model: Model) -> Mapping[str, Any]:
        """Return further arguments of the fit of a received model; none by default."""
        return {}

    async def train(
        self, client: ClientContext, state: Any, message: ModelBroadcast
    ) -> tuple[Any, ModelUpdate]:
        """Train the model on the client's own samples and send it back (ClientUpdate of FedAvg)."""
        model = message.model
        fitted = await client.fit(model, **self.training_options(client, model))
        return state, ModelUpdate.of(fitted.model, num_samples=client.num_samples())

    async def own_model(self, client: ClientContext, state: Any, message: ModelBroadcast) -> Model:
        """Return the received model."""
        return message.model

    async def models_of(self, observer: ClientContext, server_state: S, client_state: Any) -> Predictors:
        """Return the global model."""
        return {"global": Predictor(_model(server_state))}


async def own_and_global(
    self: Any, observer: ClientContext, server_state: Any, client_state: Any
) -> Predictors:
    """Return the client's own model and the server's: a ``models_of``."""
    return {"personal": Predictor(_model(client_state)), "global": Predictor(_model(server_state))}


def _model(state: Any) -> Model:
    return state if isinstance(state, Model) else state.model


def broadcasts(models: Mapping[int, Model]) -> dict[int, ModelBroadcast]:
    """Return the message for each client; a model for many clients is encoded once."""
    distinct = {id(model): model for model in models.values()}
    messages = {key: ModelBroadcast.of(model) for key, model in distinct.items()}
    return {client: messages[id(model)] for client, model in models.items()}


def start_models(server: ServerContext) -> dict[str, Model]:
    """Return the start values of the clients' architectures, by label in the order of the fleet."""
    labels = dict.fromkeys(server.architecture_of(client) for client in range(server.num_clients))
    return {label: server.initial_model(label) for label in labels}


def combined(server: ServerContext, replies: Replies[M], start: Model | None = None) -> Replies[M]:
    """Return the replies of which a merge takes the mean: as they are, or one that stands for all.

    Args:
        server: Whose aggregation decides.
        replies: With models of one architecture, or with changes of them; at least one.
        start: The model that the server has now; None where clients sent changes.
    """
    updates, origin = [reply.message for reply in replies], None if start is None else start.params
    update = server.aggregation.combined(updates, origin, server.warn)
    return replies if update is None else [replace(replies[0], message=update, discount=1.0)]


def mean_of_models(replies: Replies[ModelUpdate], weighting: Weighting) -> Model:
    """Return the mean of the replies' models, weighted by samples or equally."""
    return mean_model([reply.message for reply in replies], mean_weights(replies, weighting))


def mean_at_edge(replies: Replies[ModelUpdate], weighting: Weighting) -> tuple[ModelUpdate, float]:
    """Return what stands for replies in a mean at the server: their own mean, and its weight beside.

    The mean over all is then that over the clients: a sum of samples says by itself what it weighs, and
    where all clients weigh the same, the weight beside is their number.
    """
    num_samples = sum(reply.message.num_samples for reply in replies)
    update = ModelUpdate.of(mean_of_models(replies, weighting), num_samples)
    return update, 1.0 if weighting == "samples" else float(len(replies))


def mean_weights(replies: Replies[ModelUpdate], weighting: Weighting) -> list[float]:
    """Return the weight of each reply in a mean; they sum to one."""
    return shares(replies, [reply.message.num_samples if weighting == "samples" else 1 for reply in replies])


def means_by_architecture(replies: Replies[ModelUpdate], weighting: Weighting) -> dict[str, Model]:
    """Return the mean of the replies' models of each architecture, by label."""
    groups: dict[str, list[Reply[ModelUpdate]]] = {}
    for reply in replies:
        groups.setdefault(reply.message.architecture, []).append(reply)
    return {label: mean_of_models(group, weighting) for label, group in groups.items()}


def shares(replies: Replies, amounts: Sequence[float]) -> list[float]:
    """Return weights in proportion to ``amounts`` times the replies' discounts; they sum to one."""
    raw = [amount * reply.discount for amount, reply in zip(amounts, replies, strict=True)]
    total = sum(raw)
    return [value / total for value in raw]
