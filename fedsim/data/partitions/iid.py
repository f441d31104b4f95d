"""Everybody has the same distribution: the samples are shuffled and dealt out in equal parts."""

import numpy as np

from fedsim.config import Config
from fedsim.data.base import Indices, Labels
from fedsim.data.partitions.base import PartitionPlugin, require_samples
from fedsim.rng import Key


class Iid(PartitionPlugin[Config]):
    """Equal parts of the shuffled samples; the first clients get one more where they do not divide evenly."""

    def split(self, labels: Labels, num_clients: int, num_classes: int, key: Key) -> list[Indices]:
        """Spread all samples."""
        require_samples(len(labels), num_clients)
        return np.array_split(key.numpy().permutation(len(labels)), num_clients)


PLUGIN = Iid
