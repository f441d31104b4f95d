"""FedAsync: each model that comes back is mixed into the global one, less of it if it is stale.

The server moves to ``w <- (1 - alpha_t) w + alpha_t w_k`` with ``alpha_t = alpha * s(staleness)``, where s is
the pacing's discount. Clients are held near the model that they were sent, by a proximal term as in FedProx
(specification 5.F.1). Running statistics are mixed as parameters are. It is made for the pacing
``immediate``. Where a merge has several replies, they are mixed in one after the other, in the order of
clients, so the last weighs most.

Xie, Koyejo, Gupta: Asynchronous Federated Optimization, OPT 2020 (arXiv 1903.03934), algorithm 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedsim.algorithms.base import About, Replies
from fedsim.algorithms.common.interpolation import between
from fedsim.algorithms.common.model_rounds import ModelTraining
from fedsim.algorithms.common.proximal import held_near
from fedsim.algorithms.contexts import ClientContext, ServerContext
from fedsim.config import Config
from fedsim.params import Model
from fedsim.ranges import Coefficient, Share
from fedsim.wire import ModelUpdate


class FedAsyncConfig(Config):
    """FedAsync's own parameters."""

    alpha: Share = 0.6
    """How far the server goes towards a fresh model (the paper: 0.6). It stays the same over a run; only a
    reply's own staleness makes its alpha_t smaller."""
    rho: Coefficient = 0.005
    """Weight of the proximal term (the paper: 0.005); 0 is FedAvg's training, bit for bit."""


class FedAsync(ModelTraining[FedAsyncConfig, Model]):
    """Asynchronous federated optimisation; the server's state is the global model."""

    about = About(kind="one global model", down="S", up="S", server="the global model")

    discounted = "steps"
    own_aggregation = "its server mixes in one reply after the other"

    def training_options(self, client: ClientContext, model: Model) -> Mapping[str, Any]:
        """Train with the proximal term towards the model that came down."""
        return held_near(model, self.config.rho)

    async def merge(self, server: ServerContext, state: Model, replies: Replies[ModelUpdate]) -> Model:
        """``w <- (1 - alpha_t) w + alpha_t w_k``; alpha_t is at most 1, if fresh replies count more."""
        for reply in replies:
            state = between(state, reply.message.model, min(1.0, self.config.alpha * reply.discount))
        return state


PLUGIN = FedAsync
