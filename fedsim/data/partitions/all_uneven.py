"""Every class for every client, in uneven parts: KT-pFL's "all classes" case.

A class is shared as even / K + (1 - even) * q with q ~ Dir(alpha * 1_K), drawn for each class. The paper
gives no numbers; 0.1 and 1 are this project's choice (specification 6.2).
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
    require_samples,
)
from fedsim.errors import DataError
from fedsim.ranges import Concentration, Share
from fedsim.rng import Key


class AllUnevenConfig(Config):
    """Settings of the uneven partition of all classes."""

    even: Share = 0.1
    """Part of each class that is shared evenly; the rest follows the Dirichlet law."""
    alpha: Concentration = 1.0
    """Concentration of the Dirichlet law."""


class AllUneven(PartitionPlugin[AllUnevenConfig]):
    """Every class for every client, in uneven parts."""

    Config = AllUnevenConfig

    def split(self, pool: Pool, num_clients: int, key: Key) -> list[Indices]:
        """Spread all samples."""
        labels, num_classes = class_labels(pool, self), pool.num_classes
        require_samples(len(labels), num_clients)
        generator = key.numpy()
        classes = by_class(labels, num_classes, generator)
        drawn = generator.dirichlet(np.full(num_clients, self.config.alpha), num_classes)
        shares = self.config.even / num_clients + (1 - self.config.even) * drawn
        counts = np.zeros((num_clients, num_classes), np.int64)
        for j, samples in enumerate(classes):
            if 0 < len(samples) < num_clients:
                raise DataError(
                    f"class {j} has {len(samples)} samples for {num_clients} clients, each of which has "
                    "every class under all_uneven: use fewer clients or a larger data set"
                )
            if len(samples):
                counts[:, j] = apportion_to_all(len(samples), shares[j])
        return cut(classes, counts)


PLUGIN = AllUneven
