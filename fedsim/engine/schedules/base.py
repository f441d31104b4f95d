"""Schedules: by which factor the learning rate is multiplied at a round, or at a step of a fit.

Rounds and steps are counted from 0. The round is that in which the server sent the dispatch, so a reply that
comes late was trained at the rate of its dispatch. A step is one of the optimiser, and each fit begins at 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import lru_cache
from math import prod
from typing import Any, Literal

from fedsim.plugin_choice import Kind, NamedChoice
from fedsim.plugins import C, Plugin

By = Literal["round", "step"]


class Schedule(Plugin[C], ABC):
    """A function of position, and perhaps of length."""

    @abstractmethod
    def factor(self, position: int, length: int) -> float:
        """Return the factor, at least 0.

        Args:
            position: Rounds, or steps, before this one.
            length: Rounds of the run, or steps of the fit, at least 1; 1 where nothing :meth:`needs_length`.
        """

    @property
    def needs_length(self) -> bool:
        """Whether the factor depends on the length."""
        return False


SCHEDULE = Kind("schedule", "fedsim.engine.schedules", Schedule)  # type: ignore[type-abstract]


class ScheduleChoice(NamedChoice):
    """How the learning rate changes."""

    KIND = SCHEDULE
    name: str
    by: By = "round"
    """What it counts: rounds of the run, or the steps of each training, which begins anew with the first."""

    @property
    def needs_length(self) -> bool:
        """Whether its factor depends on how many rounds, or steps, there are."""
        schedule: Schedule[Any] = self.make()
        return schedule.needs_length


Schedules = tuple[ScheduleChoice, ...]


@lru_cache(maxsize=4096)  # the same for all clients of a round
def factor(schedules: Schedules, by: By, position: int, length: int) -> float:
    """Return the product of the factors of those schedules that count rounds, or steps."""
    return prod((one.make().factor(position, length) for one in schedules if one.by == by), start=1.0)
