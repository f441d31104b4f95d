"""The algorithm's own mean, with its own weights."""

from fedsim.algorithms.aggregation.base import Aggregation
from fedsim.config import Config


class Mean(Aggregation[Config]):
    """Leaves the replies to the algorithm."""


PLUGIN = Mean
