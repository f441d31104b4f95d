"""The point with the least sum of distances to the replies, by a few steps of Weiszfeld's algorithm.

Pillutla, Kakade, Harchaoui: Robust Aggregation for Federated Learning, IEEE Transactions on Signal Processing
2022 (arXiv 1912.13445), algorithm 2 with equal weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Annotated

from pydantic import Field

from fedsim.algorithms.aggregation.base import RobustRule, Warn
from fedsim.algorithms.common.tree_arithmetic import squared_distance
from fedsim.config import Config
from fedsim.params import Tree, weighted_mean


class GeometricMedianConfig(Config):
    """How near the point is found."""

    nu: Annotated[float, Field(gt=0, le=1e9)] = 0.1
    """A distance below it counts as this much, so that no reply is divided by zero."""
    steps: Annotated[int, Field(ge=1, le=10_000)] = 3
    """Steps of the algorithm."""


class GeometricMedian(RobustRule[GeometricMedianConfig]):
    """The smoothed geometric median, found from the server's model."""

    def combine(self, vectors: Sequence[Tree], origin: Tree, warn: Warn) -> Tree:
        """Return ``sum_i x_i / d_i / sum_i 1 / d_i``, again and again; d_i is the distance of x_i."""
        point = origin
        for _ in range(self.config.steps):
            distances = [sqrt(squared_distance(vector, point)) for vector in vectors]
            inverse = [1 / max(distance, self.config.nu) for distance in distances]
            total = sum(inverse)
            point = weighted_mean(vectors, [one / total for one in inverse])
        return point


PLUGIN = GeometricMedian
