"""Labels of each client drawn from a Dirichlet law around the overall one: skewed labels, equal sizes.

Each client's label distribution is q ~ Dir(alpha * prior), where prior is the share of each class in the data
set (Hsu, Qi and Brown 2019). All clients have equally many samples. A class that runs out is left out of the
distributions of the remaining clients. Clients get their samples in an order drawn from the key, so that low
numbers have no advantage.
"""

import numpy as np
from numpy.typing import NDArray

from fedsim.config import Config
from fedsim.data.base import Counts
from fedsim.data.partitions.base import ClassPartition
from fedsim.ranges import Concentration
from fedsim.shares import apportion


class DirichletClientConfig(Config):
    """Settings of the client-wise Dirichlet partition."""

    alpha: Concentration = 0.5
    """Concentration: near 0 every client has a single class, large values give all the same mixture."""


class DirichletClient(ClassPartition[DirichletClientConfig]):
    """Client-wise Dirichlet label distributions with equal sizes."""

    Config = DirichletClientConfig

    def counts(self, totals: Counts, num_clients: int, generator: np.random.Generator) -> Counts:
        """Return counts with equal sums; the first clients get one more if samples do not divide evenly."""
        total, left, present = int(totals.sum()), totals, np.flatnonzero(totals)
        # NumPy refuses a concentration of zero, to which a tiny alpha times a rare class may round.
        concentration = np.maximum(self.config.alpha * totals[present] / total, 1e-300)
        wishes = np.zeros((num_clients, len(totals)))
        wishes[:, present] = generator.dirichlet(concentration, num_clients)
        sizes = apportion(total, np.ones(num_clients))
        counts = np.zeros(wishes.shape, np.int64)
        for client in generator.permutation(num_clients):
            counts[client] = _serve(wishes[client], int(sizes[client]), left, generator)
            left = left - counts[client]
        return counts


def _serve(wish: NDArray[np.float64], size: int, left: Counts, generator: np.random.Generator) -> Counts:
    """Return counts (N,) of sum ``size``, at most ``left``, drawn from ``wish``, then from what is left."""
    counts = np.zeros_like(left)
    while (missing := size - int(counts.sum())) > 0:
        room = left - counts
        open_wish = np.where(room > 0, wish, 0.0)
        if not open_wish.sum() > 0:
            open_wish = room.astype(np.float64)
        drawn = generator.multinomial(missing, open_wish / open_wish.sum())
        # Each pass either fills the client or exhausts a class, so there are at most N + 1 passes.
        counts += np.minimum(drawn, room)
    return counts


PLUGIN = DirichletClient
