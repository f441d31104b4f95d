"""The rate goes from one factor to another in even steps: a warm-up, or a linear decay (torch's LinearLR).

The defaults are torch's, a warm-up. Goyal et al.: Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour,
2017 (arXiv 1706.02677), section 2.2: a gradual warm-up.
"""

from __future__ import annotations

from fedsim.config import Config
from fedsim.engine.schedules.base import Schedule
from fedsim.ranges import PositiveInterval, Share


class LinearConfig(Config):
    """From where to where, and how fast."""

    start_factor: Share = 1 / 3
    """The first factor."""
    end_factor: Share = 1.0
    """The last factor, which stays."""
    total_iters: PositiveInterval = 5
    """Rounds, or steps, from the first to the last factor."""


class Linear(Schedule[LinearConfig]):
    """``start_factor + (end_factor - start_factor) min(t, T) / T``."""

    Config = LinearConfig

    def factor(self, position: int, length: int) -> float:
        """Return the factor, exactly the last one at the end."""
        start, end, total = self.config.start_factor, self.config.end_factor, self.config.total_iters
        return end if position >= total else start + (end - start) * position / total


PLUGIN = Linear
