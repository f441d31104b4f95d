"""A few neighbouring classes for each client."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from fedsim.config import Config
from fedsim.data.base import Counts
from fedsim.data.partitions.base import ClassPartition, apportion_to_all, neighbouring_classes
from fedsim.errors import DataError
from fedsim.ranges import Classes, PartialShare, PositiveSamples
from fedsim.shares import apportion


class TwoClassConfig(Config):
    """Settings of the two-class partition."""

    spread: PartialShare = 0.5
    """How uneven the holders of a class are: shares are proportional to uniform(1 - spread, 1 + spread)."""


class TwoClass(ClassPartition[TwoClassConfig]):
    """Two classes for each client: client k holds classes k mod N and (k + 1) mod N.

    A class's samples are divided among its holders in proportion to draws from uniform(1 - spread, 1 +
    spread); with the default these are the uneven halves of KT-pFL's "two classes" case. If there are fewer
    clients than classes, classes that no client holds are left out.

    Clients k and k + N hold the same two classes, so with more clients than classes there are hidden groups.
    """

    order_first = True

    def counts(self, totals: Counts, num_clients: int, generator: np.random.Generator) -> Counts:
        """Return counts that give out every class that has a holder."""
        holds = neighbouring_classes(num_clients, len(totals))
        self.require_holders(totals, holds)
        counts = np.zeros(holds.shape, np.int64)
        for j in np.flatnonzero(holds.any(axis=0)):
            holders = np.flatnonzero(holds[:, j])
            weights = generator.uniform(1 - self.config.spread, 1 + self.config.spread, len(holders))
            counts[holders, j] = apportion_to_all(int(totals[j]), weights)
        return counts


class TwoClassLogNormalConfig(Config):
    """Settings of the two-class partition with log-normal sizes."""

    classes: Classes = 2
    """Neighbouring classes that each client holds."""
    least: PositiveSamples = 10
    """Samples of each of its classes that a client has at least."""
    sigma: Annotated[float, Field(ge=0, le=20)] = 2.0
    """How uneven the holders of a class are: the standard deviation of the logarithm of their shares."""


class TwoClassLogNormal(ClassPartition[TwoClassLogNormalConfig]):
    """Two classes for each client, or a few, and log-normal sizes: PersFL's data setup 3 (DS-3).

    Client k holds classes k mod N and (k + 1) mod N, as under ``two_class``. Every holder of a class gets
    ``least`` samples of it; the rest of the class is shared in proportion to log-normal draws. Their mean mu
    = 0 is not a setting, because it scales all draws alike and only their proportions count.

    With ``classes = 4`` a client holds four neighbouring classes: the data of KT-pFL's ablations, whose text
    does not say how they are spread; its public code deals neighbouring classes with log-normal sizes.
    """

    order_first = True

    def counts(self, totals: Counts, num_clients: int, generator: np.random.Generator) -> Counts:
        """Return counts that give out every class that has a holder."""
        classes, least = self.config.classes, self.config.least
        if classes > len(totals):
            raise DataError(
                f"classes = {classes} for each client, but the data set has {len(totals)}: "
                f"write {len(totals)} or fewer"
            )
        holds = neighbouring_classes(num_clients, len(totals), classes)
        self.require_holders(totals, holds, least)
        counts = np.zeros(holds.shape, np.int64)
        for j in np.flatnonzero(holds.any(axis=0)):
            holders = np.flatnonzero(holds[:, j])
            weights = generator.lognormal(0.0, self.config.sigma, len(holders))
            counts[holders, j] = least + apportion(int(totals[j]) - least * len(holders), weights)
        return counts


PLUGINS = {"two_class": TwoClass, "two_class_lognormal": TwoClassLogNormal}
