"""Ditto: a personal model at each client, held near the global model of FedAvg, which goes on beside it.

A client trains the global model and sends it back, as in FedAvg. Then it trains its own model on ``F_k(v) +
lam/2 ||v - w||^2``, where w is the global model that it received. The own model never travels, and FedAvg is
not changed by it (specification 5.D.7). Both are measured on clients' own samples: the own ones as
``personal`` (LM in table 1 of PerFed-CKT), the global one as ``gm``. The authors' code takes the plain mean
of models: ``weighting = "uniform"``.

Li, Hu, Beirami, Smith: Ditto: Fair and Robust Federated Learning Through Personalization, ICML 2021 (arXiv
2012.04221), algorithm 1.
"""

from __future__ import annotations

from fedsim.algorithms.base import About, Algorithm, Predictor, Predictors
from fedsim.algorithms.common.model_rounds import Weighting
from fedsim.algorithms.common.proximal import held_near
from fedsim.algorithms.contexts import ClientContext
from fedsim.algorithms.fedavg import FedAvg, FedAvgConfig
from fedsim.params import Model
from fedsim.ranges import Coefficient, PositiveEpochs
from fedsim.wire import ModelBroadcast, ModelUpdate


class DittoConfig(FedAvgConfig):
    """Ditto's own parameters."""

    weighting: Weighting = "samples"
    """What a model weighs in the global mean: its client's samples, as in FedAvg, or the same for all (the
    authors' code)."""
    lam: Coefficient = 1.0
    """How strongly a client's own model is held near the global one (the paper tries 0.1, 1 and 2); 0 is
    Local in the rounds in which the client is selected. Keep lam times the learning rate below 1."""
    personal_epochs: PositiveEpochs | None = None
    """Passes over the client's samples for its own model; by default as much work as for the global one."""


class Ditto(FedAvg[DittoConfig]):
    """FedAvg beside clients' own models; a client's state is its own model."""

    about = About(kind="personal models", down="S", up="S", client="its own model", server="the global model")

    # A client goes on with the model that it has, so nothing is sent after the last round.
    own_model, send_last = Algorithm.own_model, Algorithm.send_last

    def join(self, client: ClientContext) -> Model:
        """Begin with the start values."""
        return client.initial_model()

    async def train(
        self, client: ClientContext, state: Model, message: ModelBroadcast
    ) -> tuple[Model, ModelUpdate]:
        """Train the global model and send it back; train the client's own near the one that came."""
        _, update = await super().train(client, None, message)
        near = held_near(message.model, self.config.lam)
        own = await client.fit(state, **near, epochs=self.config.personal_epochs, name="personal")
        return own.model, update

    async def models_of(
        self, observer: ClientContext, server_state: Model, client_state: Model
    ) -> Predictors:
        """Return the client's own model, and the global one on the same samples as ``gm``."""
        shared = Predictor(server_state)
        return {"personal": Predictor(client_state), "global": shared, "gm": shared}


PLUGIN = Ditto
