"""One model for each architecture, at the server: what FedDF and Fed-ET send to clients and get back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.params import Model
from fedsim.wire import ModelBroadcast, ModelUpdate


def start_models(server: ServerContext) -> dict[str, Model]:
    """Return the start values of the clients' architectures, by label in the order of the fleet."""
    labels = dict.fromkeys(server.architecture_of(client) for client in range(server.num_clients))
    return {label: server.initial_model(label) for label in labels}


def by_architecture(
    server: ServerContext, models: Mapping[str, Model], cohort: Sequence[int]
) -> dict[int, ModelBroadcast]:
    """Return for each client the model of its architecture; one message for all who share it."""
    messages = {label: ModelBroadcast.of(model) for label, model in models.items()}
    return {client: messages[server.architecture_of(client)] for client in cohort}


async def trained(client: ClientContext, message: ModelBroadcast) -> ModelUpdate:
    """Train a model that has come on the client's own samples, and return what goes back (FedAvg's step)."""
    fitted = await client.fit(message.model)
    return ModelUpdate.of(fitted.model, num_samples=client.num_samples())
