"""Size over bandwidth: every transfer has the whole of the slower link to itself.

Latency is paid once, before the first byte; then the parcel takes ``8 * bytes / min(egress, ingress)`` seconds,
whatever else is under way. This is what most simulators compute. It understates a busy server, and is here to be
compared with.
"""

from __future__ import annotations

from fedsim.clock import call_after
from fedsim.config import Config
from fedsim.network.base import Carrier, Listener, NetworkPlugin, Parcel, Passage
from fedsim.network.links import Links


class NaiveCarrier:
    """Carries each parcel as if it were alone."""

    def __init__(self, links: Links) -> None:
        self._links = links

    def carry(self, parcel: Parcel, listener: Listener) -> Passage:
        """Start the transfer; it leaves and arrives at one instant, when the last byte has crossed."""
        links, sender, receiver = self._links, parcel.sender, parcel.receiver
        rate_bps = min(links.egress_bps(sender), links.ingress_bps(receiver))
        duration_s = links.between_s(sender, receiver) + 8 * parcel.num_bytes / rate_bps
        return call_after(duration_s, _end, parcel, listener)


class Naive(NetworkPlugin[Config]):
    """Size over bandwidth, no sharing."""

    def carrier(self, links: Links) -> Carrier:
        """Return a carrier in which transfers do not see each other."""
        return NaiveCarrier(links)


def _end(parcel: Parcel, listener: Listener) -> None:
    listener.left()
    listener.arrived(parcel)


PLUGIN = Naive
