"""What tests of data sets share."""

from typing import Any

import numpy as np

from fedsim.data.base import Counts, Labels, Samples
from fedsim.data.partitions.base import Pool
from fedsim.plugins import load
from fedsim.rng import Key


def held(array: Samples | Labels | None) -> Samples | Labels:
    assert array is not None
    return array


def counted(partition: str, num_clients: int, *sizes: int, seed: int = 0, **settings: Any) -> Counts:
    """Spread classes of these sizes; return how many samples of each class each client has, ``[K, N]``."""
    plugin: Any = load("fedsim.data.partitions", partition)
    labels = np.repeat(np.arange(len(sizes)), sizes)
    pool = Pool(labels, len(sizes))
    parts = plugin(plugin.Config(**settings)).split(pool, num_clients, Key.root(seed))
    return np.array([np.bincount(labels[part], minlength=len(sizes)) for part in parts])
