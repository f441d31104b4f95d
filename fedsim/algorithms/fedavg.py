"""FedAvg: clients train the global model, the server averages what they made of it (algorithm 1).

McMahan, Moore, Ramage, Hampson, Aguera y Arcas: Communication-Efficient Learning of Deep Networks from
Decentralized Data, AISTATS 2017 (arXiv 1602.05629).
"""

from typing import ClassVar

from typing_extensions import TypeVar

from fedsim.algorithms.base import About, Discounted, Replies
from fedsim.algorithms.common.model_rounds import ModelTraining, Weighting, combined, mean_of_models
from fedsim.algorithms.contexts import ServerContext
from fedsim.config import Config
from fedsim.params import Model
from fedsim.wire import ModelUpdate


class FedAvgConfig(Config):
    """FedAvg's own parameters."""

    weighting: Weighting = "samples"
    """What a model weighs in the mean: its client's samples (the paper's n_k / n), or the same for all."""


G = TypeVar("G", bound=FedAvgConfig, default=FedAvgConfig)


class FedAvg(ModelTraining[G, Model]):
    """Federated averaging; the server's state is the global model."""

    about = About(kind="one global model", down="S", up="S", server="the global model")

    discounted: ClassVar[Discounted] = "shares"
    own_aggregation = None
    no_edges = None

    async def merge(self, server: ServerContext, state: Model, replies: Replies[ModelUpdate]) -> Model:
        """Average: ``w <- sum_k n_k / n * w_k``."""
        return mean_of_models(combined(server, replies, state), self.config.weighting)


PLUGIN = FedAvg
