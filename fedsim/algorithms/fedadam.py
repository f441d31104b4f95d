"""FedAdam: FedAvg whose server moves the global model as Adam would.

The mean change D of the clients' models counts as a gradient. Its moments are
``u <- beta1 u + (1 - beta1) D`` and ``v <- beta2 v + (1 - beta2) D^2``, and the model moves by
``server_lr u / (sqrt(v) + epsilon)`` (specification 5.B.4).

Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar, McMahan: Adaptive Federated Optimization, ICLR 2021
(arXiv 2003.00295), algorithm 2.
"""

from fedsim.algorithms.base import About
from fedsim.algorithms.common.server_optimisers import AdaptiveConfig, AdaptiveOptimisation
from fedsim.params import Array
from fedsim.ranges import PartialShare


class FedAdamConfig(AdaptiveConfig):
    """FedAdam's own parameters."""

    beta2: PartialShare = 0.99
    """Decay of the second moment (the paper: 0.99)."""


class FedAdam(AdaptiveOptimisation[FedAdamConfig]):
    """Adam at the server."""

    about = About(kind="one global model", down="S", up="S", server="the global model and two moments")

    def second_moment(self, v: Array, squared: Array) -> Array:
        """Return a moving average of the squares."""
        return self.config.beta2 * v + (1 - self.config.beta2) * squared


PLUGIN = FedAdam
