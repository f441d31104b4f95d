"""What the server knows of its clients: what it has seen of them, four or eight bytes for each and each fact.

It keeps what the selector wants, and nothing else. What there is to know says
:data:`fedsim.runtime.policies.selectors.base.Fact`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fedsim.clock import Trace
from fedsim.params import Array
from fedsim.runtime.policies.selectors.base import Candidates, Fact, unwanted


class KnownClients:
    """What the server has seen of its clients.

    Args:
        wanted: What is kept.
        num_clients: K.
        exchange: Name of the exchange in which dispatches count.
        trace: Where they are recorded.
        took_s: Gives how long each client took last in an exchange, ``[K]``, s; negative where unknown.
    """

    def __init__(
        self,
        wanted: Sequence[Fact],
        num_clients: int,
        exchange: str,
        trace: Trace,
        took_s: Callable[[str], Array],
    ) -> None:
        self._exchange = exchange
        self._kept: dict[Fact, Array] = {fact: _start(fact, num_clients) for fact in wanted}
        # In how many selections it was looked at, out of which in `present_share` many it was there.
        self._looks = np.zeros(num_clients if "present_share" in wanted else 0, np.int32)
        if "turnaround_s" in wanted:
            took_s(exchange)  # is kept from now on
        self._took_s = took_s
        if any(fact.startswith(("times", "last")) for fact in wanted):
            trace.listen({"dispatch": self._dispatched, "merge": self._merged, "edge_merge": self._merged})

    def __call__(self, fact: Fact) -> Array:
        """Return what is known of all clients, ``[K]``.

        Raises:
            ValueError: The selector does not want it.
        """
        if fact not in self._kept:
            return unwanted(fact)
        kept = self._kept[fact]
        if fact == "turnaround_s":
            took_s = self._took_s(self._exchange)
            return np.where(took_s < 0, np.nan, took_s)
        return (kept + 1) / (self._looks + 2) if fact == "present_share" else kept

    def remembered(self) -> dict[str, Array]:
        """Return what is known, by fact, and how often each client was looked at: copies."""
        return {"looks": self._looks.copy(), **{fact: kept.copy() for fact, kept in self._kept.items()}}

    def remember(self, looks: Array, **kept: Array) -> None:
        """Go on from what was remembered."""
        self._looks[:] = looks
        for fact, values in self._kept.items():
            values[:] = kept[fact]

    def look(self, candidates: Candidates) -> None:
        """Note who is there of those who could be asked."""
        if not self._kept.keys() & {"present_share", "present_since_s"}:
            return
        if (sightings := self._kept.get("present_share")) is not None:
            self._looks[candidates.free] += 1
            sightings[candidates.clients] += 1
        if (since_s := self._kept.get("present_since_s")) is not None:
            before_s = since_s[candidates.clients]
            since_s[candidates.free] = np.nan
            since_s[candidates.clients] = np.where(np.isnan(before_s), candidates.at_s, before_s)

    def record_losses(self, told: Mapping[int, float]) -> None:
        """Record the losses that clients told."""
        if (losses := self._kept.get("losses")) is not None:
            for client, loss in told.items():
                losses[client] = loss

    def _dispatched(
        self, at_ns: int, client: int, dispatch: int, number: int, exchange: str, *_: int
    ) -> None:
        if exchange == self._exchange:
            self._count("times_asked", "last_asked", [client], number)

    def _merged(
        self, at_ns: int, number: int, exchange: str, version: int, clients: list[int], _: object
    ) -> None:
        if exchange == self._exchange:
            self._count("times_merged", "last_merged", clients, number)

    def _count(self, times: Fact, last: Fact, clients: Sequence[int], number: int) -> None:
        if times in self._kept:
            np.add.at(self._kept[times], clients, 1)  # a merge may take several replies of a client
        if last in self._kept:
            self._kept[last][clients] = number


def _start(fact: Fact, num_clients: int) -> Array:
    """Return what is kept of a fact before anything is known; of a turnaround time, nothing here."""
    if fact == "turnaround_s":
        return np.empty(0)
    if fact in ("losses", "present_since_s"):
        return np.full(num_clients, np.nan)
    return np.zeros(num_clients, np.int32)
