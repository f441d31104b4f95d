"""FedAdagrad: FedAvg whose server moves the global model as Adagrad would.

The second moment is the sum of all squared mean changes, ``v <- v + D^2``, so the steps
``server_lr u / (sqrt(v) + epsilon)`` become shorter from round to round (specification 5.B.4). The first
moment u averages over rounds as in FedAdam; by default, as in the paper's runs, it is the change itself.

Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar, McMahan: Adaptive Federated Optimization, ICLR 2021
(arXiv 2003.00295), algorithm 2.
"""

from fedsim.algorithms.base import About
from fedsim.algorithms.common.server_optimisers import AdaptiveConfig, AdaptiveOptimisation
from fedsim.params import Array
from fedsim.ranges import PartialShare


class FedAdagradConfig(AdaptiveConfig):
    """FedAdagrad's own parameters."""

    beta1: PartialShare = 0.0
    """Decay of the first moment. The paper sets it to 0 for FedAdagrad, as Adagrad has no momentum; 0.9 is
    what it takes for FedAdam and FedYogi."""


class FedAdagrad(AdaptiveOptimisation[FedAdagradConfig]):
    """Adagrad at the server."""

    about = About(kind="one global model", down="S", up="S", server="the global model and two moments")

    def second_moment(self, v: Array, squared: Array) -> Array:
        """Return the sum of the squares."""
        return v + squared


PLUGIN = FedAdagrad
