"""Two classes for each client: client k holds classes k mod N and (k + 1) mod N.

A class's samples are divided among its holders in proportion to draws from uniform(1 - spread, 1 + spread);
with the default these are the uneven halves of KT-pFL's "two classes" case. Classes that nobody holds, where
there are fewer clients than classes, are left out.

Clients k and k + N hold the same two classes, so with more clients than classes there are hidden groups.
"""

import numpy as np

from fedsim.config import Config
from fedsim.data.base import Indices
from fedsim.data.partitions.base import (
    PartitionPlugin,
    Pool,
    apportion_to_all,
    by_class,
    class_labels,
    cut,
    holders_of_neighbours,
    require_samples,
)
from fedsim.errors import DataError
from fedsim.ranges import PartialShare
from fedsim.rng import Key


class TwoClassConfig(Config):
    """Settings of the two-class partition."""

    spread: PartialShare = 0.5
    """How uneven the holders of a class are: shares are proportional to uniform(1 - spread, 1 + spread)."""


class TwoClass(PartitionPlugin[TwoClassConfig]):
    """Two neighbouring classes for each client."""

    Config = TwoClassConfig

    def split(self, pool: Pool, num_clients: int, key: Key) -> list[Indices]:
        """Spread the samples of every class that has a holder."""
        labels, num_classes = class_labels(pool, self), pool.num_classes
        require_samples(len(labels), num_clients)
        generator = key.numpy()
        classes = by_class(labels, num_classes, generator)
        counts = np.zeros((num_clients, num_classes), np.int64)
        for j, holders in enumerate(holders_of_neighbours(num_clients, num_classes)):
            if not len(holders):
                continue
            if len(classes[j]) < len(holders):
                raise DataError(
                    f"class {j} has {len(classes[j])} samples for the {len(holders)} of {num_clients} "
                    "clients that hold it under two_class: use fewer clients or a larger data set"
                )
            weights = generator.uniform(1 - self.config.spread, 1 + self.config.spread, len(holders))
            counts[holders, j] = apportion_to_all(len(classes[j]), weights)
        return cut(classes, counts)


PLUGIN = TwoClass
