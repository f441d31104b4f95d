"""One model for each architecture at the server, which clients of that architecture train."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from fedsim.algorithms.base import Algorithm, C, Exchange, Exchanges, Replies, S
from fedsim.algorithms.common.finite_outputs import logits_of_finite
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.params import Array, Model
from fedsim.wire import ModelBroadcast, ModelUpdate


def start_models(server: ServerContext) -> dict[str, Model]:
    """Return the start values of the clients' architectures, by label in the order of the fleet."""
    labels = dict.fromkeys(server.architecture_of(client) for client in range(server.num_clients))
    return {label: server.initial_model(label) for label in labels}


class PerArchitecture(Algorithm[C, S, Any]):
    """Every client trains the model of its architecture, as in FedAvg; the server has a use for them all."""

    @property
    def exchanges(self) -> Exchanges[S, Any]:
        """One: train."""
        return (Exchange("train", instruct=self.send, local=self.train, merge=self.merge, reply=ModelUpdate),)

    @abstractmethod
    def models(self, state: S) -> Mapping[str, Model]:
        """Return the models by architecture."""

    @abstractmethod
    async def merge(self, server: ServerContext, state: S, replies: Replies[ModelUpdate]) -> S:
        """Take up the models that came back."""

    async def send(
        self, server: ServerContext, state: S, cohort: Sequence[int]
    ) -> tuple[S, Mapping[int, ModelBroadcast]]:
        """Send every client the model of its architecture; one message for all who share it."""
        messages = {label: ModelBroadcast.of(model) for label, model in self.models(state).items()}
        return state, {client: messages[server.architecture_of(client)] for client in cohort}

    async def train(
        self, client: ClientContext, state: Any, message: ModelBroadcast
    ) -> tuple[Any, ModelUpdate]:
        """Train it on the client's own samples and send it back."""
        fitted = await client.fit(message.model)
        return None, ModelUpdate.of(fitted.model, num_samples=client.num_samples())


async def public_logits(
    server: ServerContext, replies: Replies[ModelUpdate]
) -> tuple[Replies[ModelUpdate], list[Array]]:
    """Ask the models that came back about all public samples; takes the server's time.

    Returns:
        The replies whose models give finite outputs, and these logits, float32 ``[p, N]`` each.
    """
    models = [reply.message.model for reply in replies]
    logits = await logits_of_finite(server, [reply.client for reply in replies], models)
    return [replies[place] for place in logits], list(logits.values())
