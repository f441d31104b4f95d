"""FedYogi: FedAvg whose server moves the global model as Yogi would.

As FedAdam, but the second moment moves towards the squares of the mean change D by a step that does not grow
with their distance: ``v <- v - (1 - beta2) D^2 sign(v - D^2)``. So it falls slowly where changes become
small, and the steps stay short (specification 5.B.4).

Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar, McMahan: Adaptive Federated Optimization, ICLR 2021
(arXiv 2003.00295), algorithm 2.
"""

import numpy as np

from fedsim.algorithms.base import About
from fedsim.algorithms.common.server_optimisers import AdaptiveConfig, AdaptiveOptimisation
from fedsim.params import Array
from fedsim.ranges import PartialShare


class FedYogiConfig(AdaptiveConfig):
    """FedYogi's own parameters."""

    beta2: PartialShare = 0.99
    """One minus the length of the second moment's steps (the paper: 0.99)."""


class FedYogi(AdaptiveOptimisation[FedYogiConfig]):
    """Yogi at the server."""

    about = About(kind="one global model", down="S", up="S", server="the global model and two moments")

    def second_moment(self, v: Array, squared: Array) -> Array:
        """Return the second moment, moved towards the squares."""
        moved: Array = v - (1 - self.config.beta2) * squared * np.sign(v - squared)
        return moved


PLUGIN = FedYogi
