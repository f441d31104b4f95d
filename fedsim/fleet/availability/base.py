"""When clients are there, as a function of client and time.

No timer runs and no client becomes an object: whoever wants to know asks. An answer depends on the key, the
client and the instant alone, so questions may come in any order, and twice.

Inside, time is a whole number of ticks of 1/1024 s. That is exact in binary: an instant in seconds is cut to
its tick without rounding, all else is arithmetic of integers, and the instants at which something changes are
floats at which, and not a bit before, the answer changes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from math import inf
from typing import Annotated, Protocol

import numpy as np
from pydantic import AfterValidator, Field

from fedsim.config import fault
from fedsim.params import Array
from fedsim.plugins import C, Plugin
from fedsim.rng import Key
from fedsim.units import Unit

TICKS_PER_S = 1024

_END_S = 2.0**42
"""Upper bound on instants, 139 000 years."""


def ticks(seconds: float) -> int:
    """Return the whole ticks nearest to a duration."""
    return round(seconds * TICKS_PER_S)


class Readiness(Protocol):
    """Who can be asked when: an :class:`Availability`, or more than that."""

    @property
    def num(self) -> int:
        """Number of clients."""

    @property
    def is_constant(self) -> bool:
        """Whether everybody always can be."""

    def available(self, clients: Array, at_s: float) -> Array:
        """Return which of the clients ``[n]`` can be at an instant, ``[n]``."""

    def look(self, client: int, at_s: float) -> tuple[bool, float]:
        """Return whether a client can be, and, if not, the earliest instant at which it may be."""


class Availability(ABC):
    """When each of ``num`` clients is there; clients are numbered from 0.

    Attributes:
        num: Number of clients.
        is_constant: Whether everybody is always there.
        time_scale_s: Time over which clients come and go, such as the period of a rhythm, s; a run that is
            much shorter sees nothing of it. None where nothing changes, or where there is no such time.
    """

    is_constant = False
    time_scale_s: float | None = None

    def __init__(self, num: int) -> None:
        self.num = num

    def available(self, clients: Array, at_s: float) -> Array:
        """Return which of the clients ``[n]`` are there at an instant, ``[n]``.

        Raises:
            IndexError: A client that does not exist.
            ValueError: No instant of a run.
        """
        if len(clients):
            self._check(int(clients.min()))
            self._check(int(clients.max()))
        return self._states(clients, _tick(at_s))

    def look(self, client: int, at_s: float) -> tuple[bool, float]:
        """Return whether a client is there at an instant, and the next at which it may come or go.

        Until then nothing changes for it; the instant is infinite if nothing ever does.

        Raises:
            IndexError: No such client.
            ValueError: No instant of a run.
        """
        self._check(client)
        is_there, change = self._look(client, _tick(at_s))
        return is_there, inf if change is None else change / TICKS_PER_S

    @abstractmethod
    def _states(self, clients: Array, tick: int) -> Array:
        """Return which of the clients are there from this tick to the next."""

    @abstractmethod
    def _look(self, client: int, tick: int) -> tuple[bool, int | None]:
        """Return whether a client is there, and the next tick at which it may come or go, if any."""

    def _check(self, client: int) -> None:
        if not 0 <= client < self.num:
            raise IndexError(f"no client {client}: there are 0 to {self.num - 1}")


class AvailabilityPlugin(Plugin[C], ABC):
    """Base of the availability models: settings, from which clients get their own comings and goings."""

    @abstractmethod
    def bind(self, num: int, key: Key) -> Availability:
        """Return when each of ``num`` clients is there; equal arguments give equal answers.

        Raises:
            DataError: A file that cannot be used as asked.
        """


class EverPresent(Availability):
    """Clients that are always there."""

    is_constant = True

    def _states(self, clients: Array, tick: int) -> Array:
        return np.ones(len(clients), np.bool_)

    def _look(self, client: int, tick: int) -> tuple[bool, int | None]:
        return True, None


class Grouped(Availability):
    """Groups of clients, each with its own model; clients are numbered through the groups in order.

    Args:
        groups: At least one.
    """

    def __init__(self, groups: Sequence[Availability]) -> None:
        self._groups = tuple(groups)
        self._stops = list(accumulate(group.num for group in groups))
        super().__init__(self._stops[-1])
        self.is_constant = all(group.is_constant for group in self._groups)

    def _states(self, clients: Array, tick: int) -> Array:
        if len(self._groups) == 1:
            return self._groups[0]._states(clients, tick)
        states = np.empty(len(clients), np.bool_)
        start = 0
        for group, stop in zip(self._groups, self._stops, strict=True):
            own = (clients >= start) & (clients < stop)
            states[own] = group._states(clients[own] - start, tick)
            start = stop
        return states

    def _look(self, client: int, tick: int) -> tuple[bool, int | None]:
        place = bisect_right(self._stops, client)
        return self._groups[place]._look(client - (self._stops[place - 1] if place else 0), tick)


def _tick(at_s: float) -> int:
    if not 0 <= at_s < _END_S:
        raise ValueError(f"{at_s} s is no instant of a run: give zero or more, below {_END_S:g} s")
    return int(at_s * TICKS_PER_S)


def _moderate(value: float) -> float:
    if not 1 <= value <= 3650 * 86400:
        raise fault(f"{value:g} s is not from 1 s to 3650 d", "write a time between these")
    return value


PresenceShare = Annotated[float, Field(ge=0.001, le=1)]
"""Share of the time during which a client is there; with less it comes too seldom to be waited for."""

Period = Annotated[float, Unit("time", positive=True), AfterValidator(_moderate)]
"""A time from 1 s to ten years."""
