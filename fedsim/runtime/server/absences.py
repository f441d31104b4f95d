"""Until when clients are known to be away: each absence is looked up once, however often it matters."""

from __future__ import annotations

import numpy as np

from fedsim.fleet import Readiness
from fedsim.params import Array

MAX_POLLED = 1024
"""Upper bound on clients polled for their next availability."""


class Absences:
    """What has been seen of the absences of clients; eight bytes for each client, once any was seen.

    Args:
        availability: When clients are there.
    """

    def __init__(self, availability: Readiness) -> None:
        self._availability = availability
        self._until_s = np.empty(0)

    def unknown(self, clients: Array, at_s: float) -> Array:
        """Return those that are not known to be away at an instant."""
        return clients[self._until_s[clients] <= at_s] if len(self._until_s) else clients

    def next_return_s(self, clients: Array, at_s: float) -> float:
        """Return when one of some clients may come, all of which are away at an instant; infinite if never.

        Of a crowd only some are polled: a longer wait is no wrong one.
        """
        if not len(self._until_s):
            self._until_s = np.zeros(self._availability.num)
        few = clients[:: max(1, len(clients) // MAX_POLLED)]
        self._look(few, at_s)
        # Of the others as many more, so that those who wait often soon know about all of them.
        self._look(self.unknown(clients, at_s)[:MAX_POLLED], at_s)
        return float(self._until_s[few].min())

    def _look(self, clients: Array, at_s: float) -> None:
        for client in self.unknown(clients, at_s).tolist():
            self._until_s[client] = self._availability.look(client, at_s)[1]
