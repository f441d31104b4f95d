"""Size over bandwidth: every transfer has the whole of the slower link to itself.

Latency is paid once, before the first byte; then the parcel takes ``8 * bytes / min(egress, ingress)``
seconds, whatever else is under way. This is what most simulators compute. It understates a busy server, and
is here to be compared with.
"""

from __future__ import annotations

from fedsim.clock.loop import to_ns
from fedsim.config import Config
from fedsim.network.base import (
    Arrivals,
    Carrier,
    Departures,
    Links,
    Listener,
    LonePassage,
    NetworkPlugin,
    Parcel,
    Passage,
)


class NaiveCarrier:
    """Carries each parcel as if it were alone."""

    def __init__(self, links: Links) -> None:
        self._links = links

    def carry(self, parcel: Parcel, listener: Listener) -> Passage:
        """Start the transfer; its last byte leaves and arrives at one instant."""
        links, ends = self._links, (parcel.sender, parcel.receiver)
        return LonePassage(parcel, listener, links.between_s(*ends), links.rate_bps(*ends))

    def arrivals(self, parcels: Departures, *, up: bool, all_at_once: bool, by_ns: int) -> Arrivals:
        """Return when parcels would arrive; see :class:`fedsim.network.base.TimetableCarrier`."""
        links, result = self._links, list[tuple[int, list[int]]]()
        for place, (start_ns, client, num_bytes) in enumerate(parcels):
            ends = (client, -1) if up else (-1, client)
            at_ns = start_ns + to_ns(links.alone_s(*ends, num_bytes))
            if at_ns <= by_ns:
                result.append((at_ns, [place]))
        return sorted(result)


class Naive(NetworkPlugin[Config]):
    """Size over bandwidth, no sharing."""

    def carrier(self, links: Links, *, verify: bool = False) -> Carrier:
        """Return a carrier of transfers that share nothing."""
        return NaiveCarrier(links)


PLUGIN = Naive
