"""FedAvg: clients train the global model, the server averages what they made of it (specification 5.A.3).

McMahan, Moore, Ramage, Hampson, Aguera y Arcas: Communication-Efficient Learning of Deep Networks from
Decentralized Data, AISTATS 2017 (arXiv 1602.05629), algorithm 1.
"""

from collections.abc import Mapping, Sequence

from fedsim.algorithms.base import Algorithm, Exchange, Exchanges, Predictor, Predictors, Replies, broadcast
from fedsim.algorithms.common.weighted_means import Weighting, mean_of_models
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.config import Config
from fedsim.params import Model
from fedsim.wire import ModelBroadcast, ModelUpdate


class FedAvgConfig(Config):
    """FedAvg's own parameters."""

    weighting: Weighting = "samples"
    """What a model weighs in the mean: its client's samples (the paper's n_k / n), or the same for all."""


class FedAvg(Algorithm[FedAvgConfig, Model, None]):
    """Federated averaging; the server's state is the global model."""

    Config = FedAvgConfig

    @property
    def exchanges(self) -> Exchanges[Model, None]:
        """One: train."""
        return (Exchange("train", instruct=self.send, local=self.train, merge=self.merge, reply=ModelUpdate),)

    def start(self, server: ServerContext) -> Model:
        """Begin with the start values of the server's architecture."""
        return server.initial_model()

    async def send(
        self, server: ServerContext, state: Model, cohort: Sequence[int]
    ) -> tuple[Model, Mapping[int, ModelBroadcast]]:
        """Send the global model."""
        return state, broadcast(cohort, ModelBroadcast.of(state))

    async def train(
        self, client: ClientContext, state: None, message: ModelBroadcast
    ) -> tuple[None, ModelUpdate]:
        """Train it on the client's own samples and send it back (ClientUpdate of the paper)."""
        fitted = await client.fit(message.model)
        return None, ModelUpdate.of(fitted.model, num_samples=client.num_samples())

    async def merge(self, server: ServerContext, state: Model, replies: Replies[ModelUpdate]) -> Model:
        """Average: ``w <- sum_k n_k / n * w_k``."""
        return mean_of_models(replies, self.config.weighting)

    async def models_of(self, observer: ClientContext, server_state: Model, client_state: None) -> Predictors:
        """Return the global model."""
        return {"global": Predictor(server_state)}


PLUGIN = FedAvg
