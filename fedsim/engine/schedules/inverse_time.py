"""The rate falls as one over the rounds, as proofs of convergence have it.

Li, Huang, Yang, Wang, Zhang: On the Convergence of FedAvg on Non-IID Data, ICLR 2020 (arXiv 1907.02189),
theorem 1: ``2 / (mu (gamma + t))``, which is a first rate times ``1 / (1 + t / gamma)``. With a rate that
does not decay FedAvg ends beside the optimum (theorem 4).
"""

from __future__ import annotations

from fedsim.config import Config
from fedsim.engine.schedules.base import Schedule
from fedsim.ranges import Coefficient


class InverseTimeConfig(Config):
    """How fast it falls."""

    decay: Coefficient = 0.1
    """Decay: after `1 / decay` rounds, or steps, the rate is half of the first."""


class InverseTime(Schedule[InverseTimeConfig]):
    """``1 / (1 + decay t)``."""

    Config = InverseTimeConfig

    def factor(self, position: int, length: int) -> float:
        """Return the quotient."""
        return 1 / (1 + self.config.decay * position)


PLUGIN = InverseTime
