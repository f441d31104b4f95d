"""Hidden groups: clients of one group hold the same classes, those of different groups different ones.

Client k is in group k mod G. The classes are shuffled and dealt out to the groups in nearly equal numbers;
a class is spread evenly over its group's clients, but for a part ``leak`` that all clients share evenly. So
there is a right answer for methods that look for clients with similar data, and ``leak`` blurs it.
"""

import numpy as np

from fedsim.config import Config
from fedsim.data.base import Counts
from fedsim.data.partitions.base import ClassPartition
from fedsim.errors import DataError
from fedsim.ranges import Clients, Share
from fedsim.shares import apportion


class LabelGroupsConfig(Config):
    """Settings of the partition into groups."""

    groups: Clients = 2
    """How many groups there are."""
    leak: Share = 0.0
    """Part of each class that all clients share: 0 keeps groups apart, 1 is no groups at all."""


class LabelGroups(ClassPartition[LabelGroupsConfig]):
    """Groups of clients with classes of their own."""

    Config = LabelGroupsConfig
    order_first = True

    def counts(self, totals: Counts, num_clients: int, generator: np.random.Generator) -> Counts:
        """Return numbers that give all samples away."""
        groups, there = self.config.groups, np.flatnonzero(totals)
        if groups > min(num_clients, len(there)):
            raise DataError(
                f"groups = {groups}, with {num_clients} clients and {len(there)} classes: "
                f"each group has one of both, so write {min(num_clients, len(there))} or fewer"
            )
        owners = np.arange(num_clients) % groups
        counts = np.zeros((num_clients, len(totals)), np.int64)
        for position, j in enumerate(generator.permutation(there)):
            own = owners == position % groups
            weights = self.config.leak / num_clients + (1 - self.config.leak) * own / own.sum()
            # In a new order each time, so that what does not divide evenly is not always the first clients'.
            order = generator.permutation(num_clients)
            counts[order, j] = apportion(int(totals[j]), weights[order])
        return counts


PLUGIN = LabelGroups
