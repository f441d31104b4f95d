"""Clients come and go with the time of day where they live.

At the local time ``h`` a client is there with probability ``share * (1 + a * cos(2 pi (h - peak) / 24 h))``,
where ``a`` makes the highest probability ``swing`` times the lowest. It does not draw anew at every moment:
it keeps a willingness, uniform in [0, 1), for a log-normal time (``keeps``), then takes another, and is there
while its willingness is below the probability, which steps every quarter of an hour. So the probability holds
exactly at every step of the day, and how long a client stays follows from ``keeps`` and from the day.

An instant of a run is the time since midnight UTC, when it starts. The swing of 4 between day and night, with
most devices at night because they have to be idle and charging, is Google's for phones in the United States
(Bonawitz et al., 2019); their zones, with about the shares of the population, and all else are defaults
without a source. A population over many zones swings less than each of its clients.
"""

from __future__ import annotations

import re
from math import cos, exp, floor, pi
from typing import Annotated, Self

import numpy as np
from pydantic import AfterValidator, Field, model_validator

from fedsim.config import Config, fault
from fedsim.fleet.availability.base import (
    TICKS_PER_S,
    Availability,
    AvailabilityPlugin,
    Period,
    PresenceShare,
)
from fedsim.fleet.availability.on_off_periods import lognormal_periods
from fedsim.params import Array
from fedsim.quoting import quoted
from fedsim.ranges import Weight
from fedsim.rng import Key
from fedsim.units import Seconds

STEP = 900 * TICKS_PER_S
"""Ticks of a quarter of an hour, for which the probability is the same."""

STEPS = 96
"""Steps of a day."""

_UINT64 = 2**64 - 1

_ZONE = re.compile(r"([+-])(0\d|1[0-4]):(00|15|30|45)")


def _zone(text: str) -> str:
    if _ZONE.fullmatch(text) is None:
        problem = (
            f"{quoted(text)} is no time zone: write hours and quarters ahead of UTC, from -14:45 to +14:45"
        )
        raise fault(problem, "such as '+05:30'")
    return text


class DiurnalConfig(Config):
    """Settings of the day."""

    share: PresenceShare = 0.25
    """Probability to be there, averaged over the day."""
    swing: Annotated[float, Field(ge=1, le=1000)] = 4.0
    """Highest probability of the day over the lowest."""
    peak: Seconds = Field(default="2 h", validate_default=True)
    """Local time of day of the highest probability, since midnight."""
    keeps: Period = Field(default="4 h", validate_default=True)
    """Median time after which a client's willingness changes, 1 s to 3650 d."""
    sigma: Annotated[float, Field(ge=0, le=2)] = 1.0
    """Standard deviation of the logarithm of that time."""
    zones: Annotated[dict[Annotated[str, AfterValidator(_zone)], Weight], Field(min_length=1)] = Field(
        default={"-05:00": 47.0, "-06:00": 29.0, "-07:00": 7.0, "-08:00": 17.0}
    )
    """Time zones, ahead of UTC, and for each a weight: the share of the clients that live there."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        top = self.share * (1 + self.amplitude)
        if top > 1 + 1e-9:
            problem = (
                f"share = {self.share:g} with swing = {self.swing:g} asks for a probability of {top:.3g}"
            )
            most = floor(1000 / (1 + self.amplitude)) / 1000
            mend = f"lower share to {most:g} or less, or lower swing"
            raise fault(problem, mend)
        if sum(self.zones.values()) == 0:
            raise fault("the weights of the zones are all zero", "give one above zero")
        return self

    @property
    def amplitude(self) -> float:
        """By how much of the average the probability rises and falls: ``a`` above."""
        return (self.swing - 1) / (self.swing + 1)


class Diurnal(AvailabilityPlugin[DiurnalConfig]):
    """A probability that follows the local time of day."""

    def bind(self, num: int, key: Key) -> Availability:
        """Return clients whose zones and willingness are drawn from ``key``."""
        return _Days(self.config, num, key)


class _Days(Availability):
    """Clients with a willingness for each interval of a loop, and a probability for each step of the day."""

    def __init__(self, config: DiurnalConfig, num: int, key: Key) -> None:
        super().__init__(num)
        middles = (np.arange(STEPS) + 0.5) * 900
        day = [1 + config.amplitude * cos(2 * pi * (middle - config.peak) / 86400) for middle in middles]
        self._probabilities = config.share * np.array(day)
        self._day: list[float] = self._probabilities.tolist()
        self._periods = lognormal_periods((config.keeps,), config.sigma, key.child("tape"))
        self._starts = key.child("places").numpy().integers(0, self._periods.length, num)
        steps = [int(f"{zone[0]}1") * (4 * int(zone[1:3]) + int(zone[4:6]) // 15) for zone in config.zones]
        ahead = np.array([count % STEPS for count in steps], np.uint8)
        weights = np.array(list(config.zones.values()))
        self._ahead = key.child("zones").numpy().choice(ahead, num, p=weights / weights.sum())
        self._seed = key.child("willingness").seed
        self.time_scale_s = 86400.0 if config.swing > 1 else config.keeps * exp(config.sigma**2 / 2)

    def _states(self, clients: Array, tick: int) -> Array:
        willingness = self._willingness(clients, tick)
        step = (tick // STEP % STEPS + self._ahead[clients]) % STEPS
        states: Array = willingness < self._probabilities[step]
        return states

    def _look(self, client: int, tick: int) -> tuple[bool, int | None]:
        # As for many clients, but in Python's numbers, which take less time for one.
        periods = self._periods
        rounds, place = divmod(self._starts.item(client) + tick, periods.length)
        passed = periods.passed_at(place)
        willingness = uniform_of(self._seed, int(client), passed + rounds * len(periods.instants))
        new = tick + min(periods.instants.item(passed), periods.length) - place
        first = tick // STEP
        local = first + self._ahead.item(client)
        is_there = willingness < self._day[local % STEPS]
        for step in range(1, STEPS):
            at = (first + step) * STEP
            if at >= new:
                break
            if (willingness < self._day[(local + step) % STEPS]) != is_there:
                return is_there, at
        return is_there, new

    def _willingness(self, clients: Array, tick: int) -> Array:
        """Return the clients' willingness, ``[n]``."""
        periods = self._periods
        rounds, rest = divmod(tick, periods.length)
        places = self._starts[clients] + rest
        rounds_of = rounds + (places >= periods.length)
        places = places % periods.length
        # The intervals that a client has known are numbered on and on, over the rounds of the loop.
        return uniform(self._seed, clients, periods.passed(places) + rounds_of * len(periods.instants))


def uniform(seed: int, *counters: Array) -> Array:
    """Return for each row of counters a number of its own, uniform in [0, 1), from nothing else.

    It is the finaliser of SplitMix64, once for each counter, so that neighbours have nothing in common.
    """
    state = np.array([seed], np.uint64)
    for counter in counters:
        state = state + (counter.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state = state ^ (state >> np.uint64(31))
    return (state >> np.uint64(11)).astype(np.float64) * 2.0**-53


def uniform_of(seed: int, *counters: int) -> float:
    """Return what :func:`uniform` does for one row of counters."""
    state = seed
    for counter in counters:
        state = (state + (counter + 1) * 0x9E3779B97F4A7C15) & _UINT64
        state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & _UINT64
        state = (state ^ (state >> 27)) * 0x94D049BB133111EB & _UINT64
        state ^= state >> 31
    return (state >> 11) * 2.0**-53


PLUGIN = Diurnal
