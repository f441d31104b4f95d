"""Sizes drawn from one Dirichlet law, labels from another: FedMe's partition of CIFAR-10.

Sizes are n * Dir(alpha_size * 1_K), and each client's preferences among the classes Dir(alpha_label * 1_N).
Twenty times in turn, the rows of the preferences are scaled to the sizes and their columns to the classes'
totals; each class is then cut into whole numbers by largest remainders, so all samples are given away.

The paper's example of 49,000 samples over 20 clients has a standard deviation of sizes of 1,025. With its
alpha_size = 10 the law's is 753, and one draw in about forty is as uneven as the example.
"""

import numpy as np

from fedsim.config import Config
from fedsim.data.base import Indices
from fedsim.data.partitions.base import (
    PartitionPlugin,
    Pool,
    by_class,
    class_labels,
    cut,
    require_samples,
    scaled,
)
from fedsim.errors import DataError
from fedsim.ranges import Concentration, Samples
from fedsim.rng import Key
from fedsim.shares import apportion

MAX_DRAWS = 200
"""How often everything is drawn before a request counts as impossible."""

ITERATIONS = 20
"""How often rows and columns are scaled."""

_LEAST = 1e-9
"""Share of a class that a client wants at least, so that no class is left without a taker."""


class DirichletTwoLevelConfig(Config):
    """Settings of the two-level Dirichlet partition."""

    alpha_label: Concentration = 0.5
    """Concentration of each client's labels: 0.1 is strong skew, 100 is nearly even."""
    alpha_size: Concentration = 10.0
    """Concentration of the sizes: 1 is strong imbalance, 1000 is nearly even."""
    min_size: Samples = 1
    """Fewest samples that a client may end up with; everything is drawn again until nobody has fewer."""


class DirichletTwoLevel(PartitionPlugin[DirichletTwoLevelConfig]):
    """Dirichlet sizes and Dirichlet label preferences, made to fit by alternating scaling."""

    Config = DirichletTwoLevelConfig

    def split(self, pool: Pool, num_clients: int, key: Key) -> list[Indices]:
        """Spread all samples."""
        config, labels, num_classes = self.config, class_labels(pool, self), pool.num_classes
        require_samples(len(labels), num_clients, max(config.min_size, 1))
        generator = key.numpy()
        totals = np.bincount(labels, minlength=num_classes)
        best = -1
        for _ in range(MAX_DRAWS):
            sizes = len(labels) * generator.dirichlet(np.full(num_clients, config.alpha_size))
            wishes = generator.dirichlet(np.full(num_classes, config.alpha_label), num_clients)
            wishes = scaled(np.maximum(wishes, _LEAST), np.maximum(sizes, _LEAST), totals, ITERATIONS)
            columns = [apportion(int(totals[j]), wishes[:, j]) for j in np.flatnonzero(totals)]
            counts = np.zeros((num_clients, num_classes), np.int64)
            counts[:, totals > 0] = np.stack(columns, axis=1)
            smallest = int(counts.sum(axis=1).min())
            if smallest >= config.min_size:
                return cut(by_class(labels, num_classes, generator), counts)
            best = max(best, smallest)
        raise DataError(
            f"{MAX_DRAWS} draws of dirichlet_two_level with alpha_size = {config.alpha_size:g} over "
            f"{num_clients} clients and {len(labels)} samples: in the best of them the smallest client had "
            f"{best}, min_size is {config.min_size}. Raise alpha_size, lower min_size, or use fewer clients"
        )


PLUGIN = DirichletTwoLevel
