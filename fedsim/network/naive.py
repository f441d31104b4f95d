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
    lone_s,
)


class NaiveCarrier:
    """Carries each parcel as if it were alone."""

    def __init__(self, links: Links) -> None:
        self._links = links

    def carry(self, parcel: Parcel, listener: Listener) -> Passage:
        """Start the transfer; its last byte leaves and arrives at one instant."""
        latency_s, rate_bps = self._path(parcel.sender, parcel.receiver)
        return LonePassage(parcel, listener, latency_s, rate_bps)

    def arrivals(self, parcels: Departures, *, up: bool, all_at_once: bool, by_ns: int) -> Arrivals:
        """Return when parcels would arrive; see :class:`fedsim.network.base.TimetableCarrier`."""
        ends_ns = list[int]()
        for start_ns, client, num_bytes in parcels:
            latency_s, rate_bps = self._path(client, -1) if up else self._path(-1, client)
            ends_ns.append(start_ns + to_ns(lone_s(latency_s, num_bytes, rate_bps)))
        order = sorted(range(len(ends_ns)), key=ends_ns.__getitem__)
        return [(ends_ns[place], [place]) for place in order if ends_ns[place] <= by_ns]

    def _path(self, sender: int, receiver: int) -> tuple[float, float]:
        """Return latency, s, and rate, bit/s."""
        links = self._links
        rate_bps = min(links.egress_bps(sender), links.ingress_bps(receiver))
        return links.between_s(sender, receiver), rate_bps


class Naive(NetworkPlugin[Config]):
    """Size over bandwidth, no sharing."""

    def carrier(self, links: Links, *, verify: bool = False) -> Carrier:
        """Return a carrier of transfers that share nothing."""
        return NaiveCarrier(links)


PLUGIN = Naive
