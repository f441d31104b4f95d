"""Clients that come and go, in a fixed rhythm or at random."""

from __future__ import annotations

from math import exp
from typing import Annotated

import numpy as np
from pydantic import Field

from fedsim.config import Config
from fedsim.fleet.availability.base import (
    Availability,
    AvailabilityPlugin,
    Period,
    PresenceShare,
    ticks,
)
from fedsim.fleet.availability.on_off_periods import Repeated, lognormal_periods
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
        period, on_share = ticks(self.config.period), self.config.on_share
        presence = np.array([[0, max(1, round(period * on_share))]])
        phases = key.numpy().integers(0, period, num)
        return Repeated([presence], period, self.config.period, np.broadcast_to(0, num), phases)


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
        config = self.config
        periods = lognormal_periods((config.on, config.off), config.sigma, key.child("tape"))
        presences = periods.instants[:-1].reshape(-1, 2)  # each ends where an absence begins
        places = key.child("places").numpy().integers(0, periods.length, num)
        time_scale_s = (config.on + config.off) * exp(config.sigma**2 / 2)
        return Repeated([presences], periods.length, time_scale_s, np.broadcast_to(0, num), places)


PLUGINS = {"duty_cycle": DutyCycle, "renewal": Renewal}
