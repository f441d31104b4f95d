"""Clients come and go in a fixed rhythm, each with a phase of its own.

A client is there for the first ``on_share`` of each period, counted from its own phase, which is drawn once
and uniformly. So at every instant, and over a period, the expected share of clients is ``on_share``.
"""

from __future__ import annotations

from pydantic import Field

from fedsim.config import Config
from fedsim.fleet.availability.base import (
    Availability,
    AvailabilityPlugin,
    Clients,
    Flags,
    Period,
    PresenceShare,
    Ticks,
    ticks,
)
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
        period = ticks(self.config.period)
        phases = key.numpy().integers(0, period, num)
        return _Rhythm(period, max(1, round(period * self.config.on_share)), phases)


class _Rhythm(Availability):
    def __init__(self, period: int, on: int, phases: Ticks) -> None:
        super().__init__(len(phases))
        self._period, self._on, self._phases = period, on, phases

    def _states(self, clients: Clients, tick: int) -> Flags:
        places = (self._phases[clients] + tick % self._period) % self._period
        states: Flags = places < self._on
        return states

    def _look(self, client: int, tick: int) -> tuple[bool, int | None]:
        if self._on == self._period:
            return True, None
        place = (int(self._phases[client]) + tick) % self._period
        is_there = place < self._on
        return is_there, tick + (self._on if is_there else self._period) - place


PLUGIN = DutyCycle
