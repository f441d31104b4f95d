"""Sizes drawn from one Dirichlet law, labels from another: FedMe's partition of CIFAR-10.

Sizes are n * Dir(alpha_size * 1_K), and each client's preferences among the classes Dir(alpha_label * 1_N).
The rows of the preferences are scaled to the sizes and their columns to the classes' totals, twenty times in
turn. Each class is then cut into whole numbers by largest remainders, so all samples are given out.

In the paper's example of 49,000 samples over 20 clients the sizes have a standard deviation of 1,025. That of
the law with the paper's alpha_size = 10 is 753, and about one draw in forty is as uneven as the example.
"""

import numpy as np

from fedsim.config import Config
from fedsim.data.base import Counts
from fedsim.data.partitions.base import ClassPartition, require_samples, scaled
from fedsim.ranges import Concentration, Samples
from fedsim.shares import apportion

MAX_DRAWS = 200
"""How often everything is drawn before a request counts as impossible."""

ITERATIONS = 20
"""How often rows and columns are scaled."""

_LEAST = 1e-9
"""Smallest preference of a client for a class, so that every class can be given out."""


class DirichletTwoLevelConfig(Config):
    """Settings of the two-level Dirichlet partition."""

    alpha_label: Concentration = 0.5
    """Concentration of each client's labels: 0.1 is strong skew, 100 is nearly even."""
    alpha_size: Concentration = 10.0
    """Concentration of the sizes: 1 is strong imbalance, 1000 is nearly even."""
    min_size: Samples = 1
    """Fewest samples that a client may end up with; everything is redrawn until no client has fewer."""


class DirichletTwoLevel(ClassPartition[DirichletTwoLevelConfig]):
    """Dirichlet sizes and Dirichlet label preferences, made to fit by alternating scaling."""

    Config = DirichletTwoLevelConfig

    def counts(self, totals: Counts, num_clients: int, generator: np.random.Generator) -> Counts:
        """Return counts that give out all samples."""
        config = self.config
        require_samples(int(totals.sum()), num_clients, config.min_size)

        def draw() -> Counts:
            sizes = totals.sum() * generator.dirichlet(np.full(num_clients, config.alpha_size))
            wishes = generator.dirichlet(np.full(len(totals), config.alpha_label), num_clients)
            wishes = scaled(np.maximum(wishes, _LEAST), np.maximum(sizes, _LEAST), totals, ITERATIONS)
            counts = np.zeros(wishes.shape, np.int64)
            for j in np.flatnonzero(totals):
                counts[:, j] = apportion(int(totals[j]), wishes[:, j])
            return counts

        return self.redrawn(draw, MAX_DRAWS, config.min_size, "alpha_size")


PLUGIN = DirichletTwoLevel
