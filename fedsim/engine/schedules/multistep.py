"""The rate falls by a factor at each of some rounds (torch's MultiStepLR)."""

from __future__ import annotations

from bisect import bisect_right
from typing import Annotated

from pydantic import Field

from fedsim.config import Ascending, AsTuple, Config
from fedsim.engine.schedules.base import Schedule
from fedsim.ranges import Few, PositiveInterval, PositiveShare


class MultiStepConfig(Config):
    """When it falls, and how far."""

    milestones: Annotated[tuple[PositiveInterval, ...], AsTuple, Few, Ascending] = Field(
        examples=["[50, 75]"]
    )
    """After how many rounds, or steps, it falls, ascending."""
    gamma: PositiveShare = 0.1
    """Factor of each fall."""


class MultiStep(Schedule[MultiStepConfig]):
    """``gamma ** (number of milestones that are at most t)``."""

    Config = MultiStepConfig

    def factor(self, position: int, length: int) -> float:
        """Return the power."""
        power: float = self.config.gamma ** bisect_right(self.config.milestones, position)
        return power


PLUGIN = MultiStep
