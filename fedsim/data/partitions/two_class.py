"""Two classes for each client: client k holds classes k mod N and (k + 1) mod N.

A class's samples are divided among its holders in proportion to draws from uniform(1 - spread, 1 + spread);
with the default these are the uneven halves of KT-pFL's "two classes" case. If there are
fewer clients than classes, classes that no client holds are left out.

Clients k and k + N hold the same two classes, so with more clients than classes there are hidden groups.
"""

import numpy as np

from fedsim.config import Config
from fedsim.data.base import Counts
from fedsim.data.partitions.base import ClassPartition, apportion_to_all, neighbouring_classes
from fedsim.ranges import PartialShare


class TwoClassConfig(Config):
    """Settings of the two-class partition."""

    spread: PartialShare = 0.5
    """How uneven the holders of a class are: shares are proportional to uniform(1 - spread, 1 + spread)."""


class TwoClass(ClassPartition[TwoClassConfig]):
    """Two neighbouring classes for each client."""

    Config = TwoClassConfig
    order_first = True

    def counts(self, totals: Counts, num_clients: int, generator: np.random.Generator) -> Counts:
        """Return counts that give out every class that has a holder."""
        holds = neighbouring_classes(num_clients, len(totals))
        self.require_holders(totals, holds)
        counts = np.zeros(holds.shape, np.int64)
        for j in np.flatnonzero(holds.any(axis=0)):
            holders = np.flatnonzero(holds[:, j])
            weights = generator.uniform(1 - self.config.spread, 1 + self.config.spread, len(holders))
            counts[holders, j] = apportion_to_all(int(totals[j]), weights)
        return counts


PLUGIN = TwoClass
