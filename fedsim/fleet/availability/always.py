"""Clients are always there."""

from __future__ import annotations

from fedsim.config import Config
from fedsim.fleet.availability.base import Availability, AvailabilityPlugin, EverPresent
from fedsim.rng import Key


class Always(AvailabilityPlugin[Config]):
    """Never away."""

    def bind(self, num: int, key: Key) -> Availability:
        """Return clients that are always there; nothing is drawn."""
        return EverPresent(num)


PLUGIN = Always
