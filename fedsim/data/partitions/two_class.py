"""Two classes for each client: client k holds classes k mod N and (k + 1) mod N.

A class's samples are divided among its holders in proportion to draws from uniform(1 - spread, 1 + spread);
with the default these are the uneven halves of KT-pFL's "two classes" case. Classes that nobody holds, where
there are fewer clients than classes, are left out.
"""

from typing import Annotated

import numpy as np
from pydantic import Field

from fedsim.config import Config
from fedsim.data.base import Indices, Labels
from fedsim.data.partitions.base import PartitionPlugin, apportion, by_class, cut, require_samples
from fedsim.errors import DataError
from fedsim.rng import Key


class TwoClassConfig(Config):
    """Settings of the two-class partition."""

    spread: Annotated[float, Field(ge=0, lt=1)] = 0.5
    """How uneven the holders of a class are: shares are proportional to uniform(1 - spread, 1 + spread)."""


class TwoClass(PartitionPlugin[TwoClassConfig]):
    """Two neighbouring classes for each client."""

    Config = TwoClassConfig

    def split(self, labels: Labels, num_clients: int, num_classes: int, key: Key) -> list[Indices]:
        """Spread the samples of every class that has a holder."""
        require_samples(len(labels), num_clients)
        generator = key.numpy()
        pools = by_class(labels, num_classes, generator)
        clients = np.arange(num_clients)
        counts = np.zeros((num_clients, num_classes), np.int64)
        for j, pool in enumerate(pools):
            holders = np.flatnonzero((clients % num_classes == j) | ((clients + 1) % num_classes == j))
            if not len(holders):
                continue
            if len(pool) < len(holders):
                raise DataError(
                    f"class {j} has {len(pool)} samples for the {len(holders)} of {num_clients} clients that "
                    "hold it under two_class: use fewer clients or a larger data set"
                )
            weights = generator.uniform(1 - self.config.spread, 1 + self.config.spread, len(holders))
            # A holder whose share rounds to nothing takes one from the largest.
            counts[holders, j] = np.maximum(apportion(len(pool), weights), 1)
            while counts[:, j].sum() > len(pool):
                counts[counts[:, j].argmax(), j] -= 1
        return cut(pools, counts)


PLUGIN = TwoClass
