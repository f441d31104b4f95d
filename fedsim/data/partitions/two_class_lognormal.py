"""Two classes for each client, or a few, and log-normal sizes: PersFL's data setup 3 (DS-3).

Client k holds classes k mod N and (k + 1) mod N, as under ``two_class``. Every holder of a class gets
``least`` samples of it; the rest of the class is shared in proportion to log-normal draws. Their mean mu = 0
is no setting: it scales all draws alike, and only their proportions count.

With ``classes = 4`` a client holds four neighbouring classes: the data of KT-pFL's ablations, whose text does
not say how they are spread; its public code deals neighbouring classes with log-normal sizes.
"""

from typing import Annotated

import numpy as np
from pydantic import Field

from fedsim.config import Config
from fedsim.data.base import Indices
from fedsim.data.partitions.base import (
    PartitionPlugin,
    Pool,
    by_class,
    class_labels,
    cut,
    holders_of_neighbours,
    require_samples,
)
from fedsim.errors import DataError
from fedsim.ranges import Classes, PositiveSamples
from fedsim.rng import Key
from fedsim.shares import apportion


class TwoClassLogNormalConfig(Config):
    """Settings of the two-class partition with log-normal sizes."""

    classes: Classes = 2
    """Neighbouring classes that each client holds."""
    least: PositiveSamples = 10
    """Samples of each of its classes that a client has at least."""
    sigma: Annotated[float, Field(ge=0, le=20)] = 2.0
    """How uneven the holders of a class are: the standard deviation of the logarithm of their shares."""


class TwoClassLogNormal(PartitionPlugin[TwoClassLogNormalConfig]):
    """A few neighbouring classes for each client, and log-normal sizes."""

    Config = TwoClassLogNormalConfig

    def split(self, pool: Pool, num_clients: int, key: Key) -> list[Indices]:
        """Spread the samples of every class that has a holder."""
        labels, num_classes, least = class_labels(pool, self), pool.num_classes, self.config.least
        require_samples(len(labels), num_clients)
        if self.config.classes > num_classes:
            raise DataError(
                f"classes = {self.config.classes} for each client, and the data set has {num_classes}: "
                f"write {num_classes} or fewer"
            )
        generator = key.numpy()
        classes = by_class(labels, num_classes, generator)
        counts = np.zeros((num_clients, num_classes), np.int64)
        for j, holders in enumerate(holders_of_neighbours(num_clients, num_classes, self.config.classes)):
            if not len(holders):
                continue
            rest = len(classes[j]) - least * len(holders)
            if rest < 0:
                raise DataError(
                    f"class {j} has {len(classes[j])} samples, and the {len(holders)} of {num_clients} "
                    f"clients that hold it get at least {least} each under two_class_lognormal: "
                    "lower least, use fewer clients or a larger data set"
                )
            weights = generator.lognormal(0.0, self.config.sigma, len(holders))
            counts[holders, j] = least + apportion(rest, weights)
        return cut(classes, counts)


PLUGIN = TwoClassLogNormal
