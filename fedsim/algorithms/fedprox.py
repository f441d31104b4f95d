"""FedProx: FedAvg whose clients are held near the global model.

The local objective is ``F_k(w) + mu/2 ||w - w_global||^2``, so a client with unusual data, or one that does
more work than others, drifts less; partial work is merged like any other (specification 5.B.1).

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: Federated Optimization in Heterogeneous Networks, MLSys 2020
(arXiv 1812.06127), algorithm 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any

from fedsim.algorithms.base import About
from fedsim.algorithms.common.proximal import held_near
from fedsim.algorithms.contexts import ClientContext
from fedsim.algorithms.fedavg import FedAvg, FedAvgConfig
from fedsim.params import Model
from fedsim.ranges import Coefficient, PositiveShare


class FedProxConfig(FedAvgConfig):
    """FedProx's own parameters."""

    mu: Coefficient = 0.01
    """Weight of the proximal term (the paper tries 0.001, 0.01, 0.1 and 1); 0 is FedAvg, bit for bit."""
    gamma: PositiveShare = 1.0
    """Least share of its mini-batches that a client does; each dispatch draws its share from [gamma, 1]."""


class FedProx(FedAvg[FedProxConfig]):
    """FedAvg with a proximal term."""

    about = About(kind="one global model", down="S", up="S", server="the global model")

    def training_options(self, client: ClientContext, model: Model) -> Mapping[str, Any]:
        """Train with the proximal term towards the model that came, on a share of the mini-batches."""
        options = held_near(model, self.config.mu)
        if self.config.gamma < 1:
            share = client.key.child("work").numpy().uniform(self.config.gamma, 1)
            options["steps"] = ceil(share * client.usual_steps(model.architecture))
        return options


PLUGIN = FedProx
