"""FedAvgM: FedAvg with momentum at the server.

The mean change D of the clients' models moves a velocity, ``u <- beta u + D``, and that moves the global
model, ``w <- w + server_lr u`` (specification 5.B.4). Changes of earlier rounds so stand in for the clients
that a round does not ask.

Hsu, Qi, Brown: Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification,
2019 (arXiv 1909.06335), section 4.3.
"""

import numpy as np

from fedsim.algorithms.base import About
from fedsim.algorithms.common.server_optimisers import ServerOptimisation, ServerOptimiserConfig
from fedsim.params import Array
from fedsim.ranges import PartialShare


class FedAvgMConfig(ServerOptimiserConfig):
    """FedAvgM's own parameters."""

    momentum: PartialShare = 0.9
    """How much of the velocity stays from round to round, beta (the paper tries 0 to 0.997)."""
    nesterov: bool = False
    """Move by ``D + beta u`` instead of u: Nesterov's momentum, which the paper uses."""


class FedAvgM(ServerOptimisation[FedAvgMConfig]):
    """Momentum at the server."""

    about = About(kind="one global model", down="S", up="S", server="the global model and its velocity")

    def first_moments(self, like: Array) -> tuple[Array, ...]:
        """Return a velocity of 0."""
        return (np.zeros(like.shape),)

    def step(self, change: Array, *moments: Array) -> tuple[Array, ...]:
        """Return how a parameter moves, and its new velocity."""
        momentum, (u,) = self.config.momentum, moments
        u = momentum * u + change
        return change + momentum * u if self.config.nesterov else u, u


PLUGIN = FedAvgM
