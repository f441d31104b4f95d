"""The same distribution for every client: the samples are shuffled and dealt out in equal parts."""

import numpy as np

from fedsim.config import Config
from fedsim.data.base import Indices
from fedsim.data.partitions.base import PartitionPlugin, Pool, require_samples
from fedsim.rng import Key


class Iid(PartitionPlugin[Config]):
    """Equal parts of the shuffled samples; the first clients get one more if they do not divide evenly."""

    def split(self, pool: Pool, num_clients: int, key: Key) -> list[Indices]:
        """Spread all samples."""
        require_samples(len(pool), num_clients)
        return np.array_split(key.numpy().permutation(len(pool)), num_clients)


PLUGIN = Iid
