"""The rate falls along half a cosine (torch's CosineAnnealingLR).

Loshchilov, Hutter: SGDR: Stochastic Gradient Descent with Warm Restarts, ICLR 2017 (arXiv 1608.03983),
equation 5, without restarts.
"""

from __future__ import annotations

from math import cos, pi

from fedsim.config import Config
from fedsim.engine.schedules.base import Schedule
from fedsim.ranges import PositiveInterval, Share


class CosineConfig(Config):
    """Where and when it ends."""

    total_iters: PositiveInterval | None = None
    """Rounds, or steps, until the end, from which on the rate stays: torch's `T_max`; those of the run, or of
    each training, if left out."""
    min_factor: Share = 0.0
    """The factor at the end: torch's `eta_min`, as a share of the rate."""


class Cosine(Schedule[CosineConfig]):
    """``min_factor + (1 - min_factor) (1 + cos(pi min(t, T) / T)) / 2``."""

    Config = CosineConfig

    def factor(self, position: int, length: int) -> float:
        """Return where the cosine is."""
        total, least = self.config.total_iters or length, self.config.min_factor
        return least + (1 - least) * (1 + cos(pi * min(position, total) / total)) / 2

    @property
    def needs_length(self) -> bool:
        """Unless it is given."""
        return self.config.total_iters is None


PLUGIN = Cosine
