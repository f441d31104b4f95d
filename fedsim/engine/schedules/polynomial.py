"""The rate falls to 0 along a power; with a power of 1, in even steps (torch's PolynomialLR)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fedsim.config import Config
from fedsim.engine.schedules.base import Schedule
from fedsim.ranges import PositiveInterval


class PolynomialConfig(Config):
    """When it ends, and how it bends."""

    total_iters: PositiveInterval | None = None
    """Rounds, or steps, until the rate is 0, and stays so; those of the run, or of each training, if left
    out."""
    power: Annotated[float, Field(gt=0, le=100)] = 1.0
    """The exponent."""


class Polynomial(Schedule[PolynomialConfig]):
    """``(1 - min(t, T) / T) ** power``."""

    Config = PolynomialConfig

    def factor(self, position: int, length: int) -> float:
        """Return the power."""
        total = self.config.total_iters or length
        power: float = (1 - min(position, total) / total) ** self.config.power
        return power

    @property
    def needs_length(self) -> bool:
        """Unless it is given."""
        return self.config.total_iters is None


PLUGIN = Polynomial
