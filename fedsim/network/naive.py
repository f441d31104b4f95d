"""Size over bandwidth: every transfer has the whole of the slower link to itself.

Latency is paid once, before the first byte; then the parcel takes ``8 * bytes / min(egress, ingress)``
seconds, whatever else is under way. This is what most simulators compute. It understates a busy server, and
is here to be compared with.
"""

from __future__ import annotations

import numpy as np

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
    numbers_of,
)


class NaiveCarrier:
    """Carries each parcel as if it were alone."""

    def __init__(self, links: Links) -> None:
        self._links = links

    def carry(self, parcel: Parcel, listener: Listener) -> Passage:
        """Start the transfer; its last byte leaves and arrives at one instant."""
        links, sender, receiver = self._links, parcel.sender, parcel.receiver
        rate_bps = min(links.egress_bps(sender), links.ingress_bps(receiver))
        return LonePassage(parcel, listener, links.between_s(sender, receiver), rate_bps)

    def arrivals(self, parcels: Departures, *, up: bool, all_at_once: bool, by_ns: int) -> Arrivals:
        """Return when parcels would arrive; see :class:`fedsim.network.base.TimetableCarrier`."""
        links, (start_ns, clients, num_bytes, _) = self._links, parcels
        server_bps, client_bps = (
            (links.server_down_bps, links.up_bps) if up else (links.server_up_bps, links.down_bps)
        )
        rate_bps = np.minimum(server_bps, numbers_of(clients, client_bps))
        latency_s = links.server_latency_s + numbers_of(clients, links.latency_s)
        passed_ns = np.rint((latency_s + 8 * num_bytes / rate_bps) * 1e9)
        ends_ns = start_ns + np.minimum(passed_ns, 2.0**62).astype(np.int64)  # which is never in time
        order = np.argsort(ends_ns, kind="stable")
        return Arrivals(ends_ns[order], order, np.zeros(len(order), np.int64)).until(by_ns)


class Naive(NetworkPlugin[Config]):
    """Size over bandwidth, no sharing."""

    def carrier(self, links: Links, *, verify: bool = False) -> Carrier:
        """Return a carrier of transfers that share nothing."""
        return NaiveCarrier(links)


PLUGIN = Naive
