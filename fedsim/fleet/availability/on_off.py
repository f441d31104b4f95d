"""Clients that come and go, in a fixed rhythm or at random."""

from __future__ import annotations

from math import exp
from typing import Annotated

from pydantic import Field

from fedsim.config import Config
from fedsim.fleet.availability.base import (
    Availability,
    AvailabilityPlugin,
    Period,
    PresenceShare,
    ticks,
)
from fedsim.fleet.availability.on_off_periods import lognormal_periods
from fedsim.params import Array
from fedsim.rng import Key


class DutyCycleConfig(Config):
    """Settings of the rhythm."""

    period: Period = Field(default="24 h", validate_default=True)
    """Time from one coming to the next, 1 s to 3650 d."""
    on_share: PresenceShare = 0.25
    """Share of each period during which a client is there."""


class DutyCycle(AvailabilityPlugin[DutyCycleConfig]):
    """Clients come and go in a fixed rhythm, each with a phase of its own.

    A client is there for the first ``on_share`` of each period, counted from its own phase, which is drawn
    once and uniformly. So at every instant, and over a period, the expected share of clients is ``on_share``.
    """

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


class RenewalConfig(Config):
    """Settings of the coming and going."""

    on: Period = Field(default="2 h", validate_default=True)
    """Median time of presence; the mean is ``exp(sigma**2 / 2)`` times as long."""
    off: Period = Field(default="6 h", validate_default=True)
    """Median time of absence, 1 s to 3650 d."""
    sigma: Annotated[float, Field(ge=0, le=2)] = 1.0
    """Standard deviation of the logarithm of each duration."""


class Renewal(AvailabilityPlugin[RenewalConfig]):
    """Clients come and go at random, for log-normal durations.

    Times of presence and of absence alternate, each drawn independently; at the start of a run clients are
    somewhere in the middle of one, as if they had always come and gone. In the long run a client is there for
    ``on / (on + off)`` of the time, which is 1/4 by default. The medians and the spread are defaults without
    a source; that durations are heavy-tailed is what the traces of phones behind FLASH (WWW 2021) and
    FedScale (ICML 2022) show.
    """

    def bind(self, num: int, key: Key) -> Availability:
        """Return clients whose comings and goings are drawn from ``key``."""
        return _Turns(self.config, num, key)


class _Turns(Availability):
    """Clients that read a loop of presence and absence, each from a place of its own."""

    def __init__(self, config: RenewalConfig, num: int, key: Key) -> None:
        super().__init__(num)
        self._periods = lognormal_periods((config.on, config.off), config.sigma, key.child("tape"))
        self._starts = key.child("places").numpy().integers(0, self._periods.length, num)
        self.time_scale_s = (config.on + config.off) * exp(config.sigma**2 / 2)

    def _states(self, clients: Array, tick: int) -> Array:
        # The first interval begins at 0 and is one of presence: at odd counts the client is there.
        length = self._periods.length
        states: Array = self._periods.passed((self._starts[clients] + tick % length) % length) % 2 == 1
        return states

    def _look(self, client: int, tick: int) -> tuple[bool, int | None]:
        place = (int(self._starts[client]) + tick) % self._periods.length
        passed = self._periods.passed_at(place)
        end = min(int(self._periods.instants[passed]), self._periods.length)
        return passed % 2 == 1, tick + end - place


PLUGINS = {"duty_cycle": DutyCycle, "renewal": Renewal}
