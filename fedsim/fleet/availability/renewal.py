"""Clients come and go at random, for log-normal durations.

Times of presence and of absence alternate, each drawn independently; at the start of a run clients are
somewhere in the middle of one, as if they had always come and gone. In the long run a client is there for
``on / (on + off)`` of the time, which is 1/4 by default. The medians and the spread are defaults without a
source; that durations are heavy-tailed is what the traces of phones behind FLASH (WWW 2021) and FedScale
(ICML 2022) show.
"""

from __future__ import annotations

from math import exp
from typing import Annotated

from pydantic import Field

from fedsim.config import Config
from fedsim.fleet.availability.base import Availability, AvailabilityPlugin, Period
from fedsim.fleet.availability.on_off_periods import lognormal_periods
from fedsim.params import Array
from fedsim.rng import Key


class RenewalConfig(Config):
    """Settings of the coming and going."""

    on: Period = Field(default="2 h", validate_default=True)
    """Median time of presence; the mean is ``exp(sigma**2 / 2)`` times as long."""
    off: Period = Field(default="6 h", validate_default=True)
    """Median time of absence, 1 s to 3650 d."""
    sigma: Annotated[float, Field(ge=0, le=2)] = 1.0
    """Standard deviation of the logarithm of each duration."""


class Renewal(AvailabilityPlugin[RenewalConfig]):
    """Presence and absence take turns, for random durations."""

    Config = RenewalConfig

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


PLUGIN = Renewal
