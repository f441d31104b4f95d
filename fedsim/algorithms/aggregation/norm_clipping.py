"""The mean of the clients' changes, each of which is made no longer than a bound.

A change is what a client sends minus the server's model, which may be newer than the one that the client
trained. Where clients send several trees, such as a change and a control variate, they are one vector.

Sun, Kairouz, Suresh, McMahan: Can You Really Backdoor Federated Learning?, 2019 (arXiv 1911.07963), norm
thresholding.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Annotated

from pydantic import Field

from fedsim.algorithms.aggregation.base import RobustRule, Warn
from fedsim.algorithms.common.tree_arithmetic import combination, squared_distance
from fedsim.config import Config
from fedsim.params import Tree


class NormClippingConfig(Config):
    """The bound."""

    c: Annotated[float, Field(gt=0, le=1e9)] = 2.0
    """The largest Euclidean norm of a client's change of the parameters."""


class NormClipping(RobustRule[NormClippingConfig]):
    """The mean of clipped changes."""

    def combine(self, vectors: Sequence[Tree], origin: Tree, warn: Warn) -> Tree:
        """Return ``w + 1 / m * sum_i min(1, c / |x_i - w|) (x_i - w)``."""
        norms = [sqrt(squared_distance(vector, origin)) for vector in vectors]
        shares = [min(1.0, self.config.c / norm) / len(vectors) if norm else 0.0 for norm in norms]
        return combination([origin, *vectors], [1 - sum(shares), *shares])


PLUGIN = NormClipping
