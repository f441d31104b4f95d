"""Every class for every client, in uneven parts: KT-pFL's "all classes" case.

A class is shared as even / K + (1 - even) * q with q ~ Dir(alpha * 1_K), drawn for each class. The paper
gives no numbers; 0.1 and 1 are this project's choice (specification 6.2).
"""

import numpy as np

from fedsim.config import Config
from fedsim.data.base import Counts
from fedsim.data.partitions.base import ClassPartition, apportion_to_all
from fedsim.ranges import Concentration, Share


class AllUnevenConfig(Config):
    """Settings of the uneven partition of all classes."""

    even: Share = 0.1
    """Part of each class that is shared evenly; the rest follows the Dirichlet law."""
    alpha: Concentration = 1.0
    """Concentration of the Dirichlet law."""


class AllUneven(ClassPartition[AllUnevenConfig]):
    """Every class for every client, in uneven parts."""

    order_first = True

    def counts(self, totals: Counts, num_clients: int, generator: np.random.Generator) -> Counts:
        """Return counts that give out all samples."""
        self.require_holders(totals, np.tile(totals > 0, (num_clients, 1)))
        drawn = generator.dirichlet(np.full(num_clients, self.config.alpha), len(totals))
        shares = self.config.even / num_clients + (1 - self.config.even) * drawn
        counts = np.zeros((num_clients, len(totals)), np.int64)
        for j in np.flatnonzero(totals):
            counts[:, j] = apportion_to_all(int(totals[j]), shares[j])
        return counts


PLUGIN = AllUneven
