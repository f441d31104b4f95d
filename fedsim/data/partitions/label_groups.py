"""Hidden groups: the clients of a group hold the same classes, and different groups hold different ones.

Client k is in group k mod G. The classes are shuffled and dealt out to the groups in nearly equal numbers;
a class is spread evenly over its group's clients, except for a part ``leak`` that all clients share evenly.
Methods that look for clients with similar data thus have a right answer, which becomes less clear with
``leak``.
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
    """Part of each class that all clients share: 0 separates the groups, 1 gives no groups at all."""


class LabelGroups(ClassPartition[LabelGroupsConfig]):
    """Groups of clients with classes of their own."""

    order_first = True

    def counts(self, totals: Counts, num_clients: int, generator: np.random.Generator) -> Counts:
        """Return counts that give out all samples."""
        groups, there = self.config.groups, np.flatnonzero(totals)
        if groups > min(num_clients, len(there)):
            raise DataError(
                f"groups = {groups}, with {num_clients} clients and {len(there)} classes: each group needs a "
                f"client and a class, so write {min(num_clients, len(there))} or fewer"
            )
        owners = np.arange(num_clients) % groups
        counts = np.zeros((num_clients, len(totals)), np.int64)
        for position, j in enumerate(generator.permutation(there)):
            own = owners == position % groups
            weights = self.config.leak / num_clients + (1 - self.config.leak) * own / own.sum()
            # In a new order each time, so that remainders do not always go to the first clients.
            order = generator.permutation(num_clients)
            counts[order, j] = apportion(int(totals[j]), weights[order])
        return counts


PLUGIN = LabelGroups
