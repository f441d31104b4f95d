"""FedAvg: clients train the global model, the server averages what they made of it.

Each client of the cohort starts from the global model, trains on its own samples and returns its model; the
new global model is the mean, weighted by the clients' numbers of samples (specification 5.A.3).

McMahan, Moore, Ramage, Hampson, Aguera y Arcas: Communication-Efficient Learning of Deep Networks from
Decentralized Data, AISTATS 2017 (arXiv 1602.05629), algorithm 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fedsim.algorithms.base import Algorithm, Exchange, Predictor, Reply, broadcast, shares
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.algorithms.likeness import unlike as unlike
from fedsim.config import Config
from fedsim.params import Model, mean_model
from fedsim.wire import Message, ModelBroadcast, ModelUpdate


class FedAvgConfig(Config):
    """FedAvg's own parameters."""

    weighting: Literal["samples", "uniform"] = "samples"
    """What a model weighs in the mean: its client's samples (the paper's n_k / n), or the same for all."""


@dataclass(frozen=True, slots=True)
class ServerState:
    """The global model."""

    model: Model


class FedAvg(Algorithm[FedAvgConfig, ServerState, None]):
    """Federated averaging."""

    Config = FedAvgConfig

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """One: train."""
        return (Exchange("train", reply=ModelUpdate),)

    def start(self, server: ServerContext) -> ServerState:
        """Begin with the start values of the server's architecture."""
        return ServerState(server.initial_model())

    def join(self, client: ClientContext) -> None:
        """A client remembers nothing."""

    async def instruct_train(
        self, server: ServerContext, state: ServerState, cohort: Sequence[int]
    ) -> tuple[ServerState, Mapping[int, Message | None]]:
        """Send the global model."""
        return state, broadcast(cohort, ModelBroadcast.of(state.model))

    async def local_train(
        self, client: ClientContext, state: None, message: ModelBroadcast
    ) -> tuple[None, Message | None]:
        """Train it on the client's own samples and send it back (ClientUpdate of the paper)."""
        fitted = await client.fit(message.model)
        return None, ModelUpdate.of(fitted.model, num_samples=client.num_samples())

    async def merge_train(
        self, server: ServerContext, state: ServerState, replies: Sequence[Reply]
    ) -> ServerState:
        """Average: ``w <- sum_k n_k / n * w_k``."""
        by_samples = self.config.weighting == "samples"
        amounts = [reply.message.num_samples if by_samples else 1 for reply in replies]
        return ServerState(mean_model([reply.message.model for reply in replies], shares(replies, amounts)))

    def vet(self, server: ServerContext, state: ServerState, reply: Reply) -> str | None:
        """Refuse another architecture or shape."""
        return unlike(reply.message.model, state.model)

    async def models_of(
        self, observer: ClientContext, server_state: ServerState, client_state: Any
    ) -> Mapping[str, Predictor]:
        """Return the global model."""
        return {"global": Predictor(server_state.model)}


PLUGIN = FedAvg
