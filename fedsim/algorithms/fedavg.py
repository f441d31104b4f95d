"""FedAvg: clients train the global model, the server averages what they made of it.

Each client of the cohort starts from the global model, trains on its own samples and returns its model; the
new global model is the mean, weighted by the clients' numbers of samples (specification 5.A.3).

McMahan, Moore, Ramage, Hampson, Aguera y Arcas: Communication-Efficient Learning of Deep Networks from
Decentralized Data, AISTATS 2017 (arXiv 1602.05629), algorithm 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from fedsim.algorithms.base import Algorithm, Exchange, Exchanges, Predictor, Reply, broadcast, shares
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.config import Config
from fedsim.params import Model, mean_model
from fedsim.wire import ModelBroadcast, ModelUpdate


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
    def exchanges(self) -> Exchanges[ServerState, None]:
        """One: train."""
        return (Exchange("train", instruct=self.send, local=self.train, merge=self.merge, reply=ModelUpdate),)

    def start(self, server: ServerContext) -> ServerState:
        """Begin with the start values of the server's architecture."""
        return ServerState(server.initial_model())

    async def send(
        self, server: ServerContext, state: ServerState, cohort: Sequence[int]
    ) -> tuple[ServerState, Mapping[int, ModelBroadcast]]:
        """Send the global model."""
        return state, broadcast(cohort, ModelBroadcast.of(state.model))

    async def train(
        self, client: ClientContext, state: None, message: ModelBroadcast
    ) -> tuple[None, ModelUpdate]:
        """Train it on the client's own samples and send it back (ClientUpdate of the paper)."""
        fitted = await client.fit(message.model)
        return None, ModelUpdate.of(fitted.model, num_samples=client.num_samples())

    async def merge(
        self, server: ServerContext, state: ServerState, replies: Sequence[Reply[ModelUpdate]]
    ) -> ServerState:
        """Average: ``w <- sum_k n_k / n * w_k``."""
        by_samples = self.config.weighting == "samples"
        amounts = [reply.message.num_samples if by_samples else 1 for reply in replies]
        return ServerState(mean_model([reply.message.model for reply in replies], shares(replies, amounts)))

    async def models_of(
        self, observer: ClientContext, server_state: ServerState, client_state: None
    ) -> Mapping[str, Predictor]:
        """Return the global model."""
        return {"global": Predictor(server_state.model)}


PLUGIN = FedAvg
