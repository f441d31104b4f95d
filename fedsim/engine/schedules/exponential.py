"""The rate falls by a factor with every round (torch's ExponentialLR).

McMahan, Moore, Ramage, Hampson, Agüera y Arcas: Communication-Efficient Learning of Deep Networks from
Decentralized Data, AISTATS 2017 (arXiv 1602.05629), section 3: 0.99 a round, for FedAvg on CIFAR-10.
"""

from __future__ import annotations

from fedsim.config import Config
from fedsim.engine.schedules.base import Schedule
from fedsim.ranges import PositiveShare


class ExponentialConfig(Config):
    """How fast it falls."""

    gamma: PositiveShare = 0.99
    """Factor of each round, or step."""


class Exponential(Schedule[ExponentialConfig]):
    """``gamma ** t``."""

    Config = ExponentialConfig

    def factor(self, position: int, length: int) -> float:
        """Return the power."""
        power: float = self.config.gamma**position
        return power


PLUGIN = Exponential
