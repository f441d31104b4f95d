"""The rate falls by a factor every so many rounds (torch's StepLR)."""

from __future__ import annotations

from pydantic import Field

from fedsim.config import Config
from fedsim.engine.schedules.base import Schedule
from fedsim.ranges import PositiveInterval, PositiveShare


class StepConfig(Config):
    """How often it falls, and how far."""

    step_size: PositiveInterval = Field(examples=[30])
    """Rounds, or steps, from one fall to the next."""
    gamma: PositiveShare = 0.1
    """Factor of each fall."""


class Step(Schedule[StepConfig]):
    """``gamma ** (t // step_size)``."""

    Config = StepConfig

    def factor(self, position: int, length: int) -> float:
        """Return the power."""
        power: float = self.config.gamma ** (position // self.config.step_size)
        return power


PLUGIN = Step
