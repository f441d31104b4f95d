"""Clients come and go in a fixed rhythm, each with a phase of its own.

A client is there for the first ``on_share`` of each period, counted from its own phase, which is drawn once
and uniformly. So at every instant, and over a period, the expected share of clients is ``on_share``.
"""

from __future__ import annotations

from pydantic import Field

from fedsim.config import Config
from fedsim.fleet.availability.base import Availability, AvailabilityPlugin, Period, PresenceShare, ticks
from fedsim.params import Array
from fedsim.rng import Key


class DutyCycleConfig(Config):
    """Settings of the rhythm."""

    period: Period = Field(default="24 h", validate_default=True)
    """Time from one coming to the next, 1 s to 3650 d."""
    on_share: PresenceShare = 0.25
    """Share of each period during which a client is there."""


class DutyCycle(AvailabilityPlugin[DutyCycleConfig]):
    """A fixed rhythm with a random phase."""

    Config = DutyCycleConfig

    def bind(self, num: int, key: Key) -> Availability:
        """Return clients whose phases are drawn from ``key``."""
        return _Rhythm(self.config, num, key)


class _Rhythm(Availability):
    def __init__(self, config: DutyCycleConfig, num: int, key: Key) -> None:
        super().__init__(num)
        self._period = ticks(config.period)
        self._on = max(1, round(self._period * config.on_share))
        self._phases = key.numpy().integers(0, self._period, num)
        self.time_scale_s = config.period if self._on < self._period else None

    def _states(self, clients: Array, tick: int) -> Array:
        places = (self._phases[clients] + tick % self._period) % self._period
        states: Array = places < self._on
        return states

    def _look(self, client: int, tick: int) -> tuple[bool, int | None]:
        if self._on == self._period:
            return True, None
        place = (int(self._phases[client]) + tick) % self._period
        is_there = place < self._on
        return is_there, tick + (self._on if is_there else self._period) - place


PLUGIN = DutyCycle
