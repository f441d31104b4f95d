"""FedProx: FedAvg whose clients are held near the global model.

The local objective is ``F_k(w) + mu/2 ||w - w_global||^2``, so a client with unusual data, or one that does
more work than others, drifts less; partial work is merged like any other (specification 5.B.1).

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: Federated Optimization in Heterogeneous Networks, MLSys 2020
(arXiv 1812.06127), algorithm 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import ceil
from typing import Any

from fedsim.algorithms.base import About, Exchanges
from fedsim.algorithms.common.proximal import Proximal
from fedsim.algorithms.contexts import ClientContext
from fedsim.algorithms.fedavg import FedAvg, FedAvgConfig
from fedsim.engine.jobs import Extra
from fedsim.engine.steps import Descent, Step
from fedsim.params import Model
from fedsim.ranges import Coefficient, PositiveShare
from fedsim.wire import ModelBroadcast, ModelUpdate


class FedProxConfig(FedAvgConfig):
    """FedProx's own parameters."""

    mu: Coefficient = 0.01
    """Weight of the proximal term (the paper tries 0.001, 0.01, 0.1 and 1); 0 is FedAvg, bit for bit."""
    gamma: PositiveShare = 1.0
    """Least share of its mini-batches that a client does; each dispatch draws its share from [gamma, 1]."""


class FedProx(FedAvg[FedProxConfig]):
    """FedAvg with a proximal term."""

    about = About(kind="one global model", down="S", up="S", server="the global model")

    @property
    def exchanges(self) -> Exchanges[Model, Any]:
        """One: train, or a share of it."""
        (train,) = super().exchanges
        return (train if self.config.gamma == 1 else replace(train, local=self.train_share),)

    @property
    def training_step(self) -> Step:
        """Descent with the proximal term."""
        return Descent(correct=Proximal(self.config.mu))

    def training_extras(self, model: Model) -> Mapping[str, Extra]:
        """Return the anchor of the term: the model that came."""
        return {"anchor": Extra(model.params)}

    async def train_share(
        self, client: ClientContext, state: Any, message: ModelBroadcast
    ) -> tuple[Any, ModelUpdate]:
        """Train on a random share of the mini-batches."""
        model = message.model
        share = client.key.child("work").numpy().uniform(self.config.gamma, 1)
        steps = ceil(share * client.usual_steps(model.architecture))
        extras = self.training_extras(model)
        fitted = await client.fit(model, step=self.training_step, extras=extras, steps=steps)
        return state, ModelUpdate.of(fitted.model, num_samples=client.num_samples())


PLUGIN = FedProx
