"""Equal parts."""

import numpy as np

from fedsim.config import Config
from fedsim.data.partitions.base import Pool
from fedsim.data.partitions.iid import Iid
from fedsim.rng import Key


def test_sizes_differ_by_at_most_one() -> None:
    parts = Iid(Config()).split(Pool(np.zeros(11, np.int64), 1), 4, Key.root(0))
    assert [len(part) for part in parts] == [3, 3, 3, 2]


def test_every_client_has_nearly_the_same_mixture() -> None:
    labels = np.arange(40_000) % 4
    for part in Iid(Config()).split(Pool(labels, 4), 4, Key.root(0)):
        # 2,500 of each class, give or take five standard deviations of a hypergeometric draw.
        assert np.abs(np.bincount(labels[part]) - 2500).max() < 5 * np.sqrt(10_000 * 3 / 16 * 3 / 4)
