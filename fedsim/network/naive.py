"""Size over bandwidth: every transfer has the whole of the slower link to itself.

Latency is paid once, before the first byte; then the parcel takes ``8 * bytes / min(egress, ingress)``
seconds, whatever else is under way. This is what most simulators compute. It understates a busy server, and
is here to be compared with.
"""

from __future__ import annotations

from fedsim.config import Config
from fedsim.network.base import Carrier, Listener, LonePassage, NetworkPlugin, Parcel, Passage
from fedsim.network.links import Links


class NaiveCarrier:
    """Carries each parcel as if it were alone."""

    def __init__(self, links: Links) -> None:
        self._links = links

    def carry(self, parcel: Parcel, listener: Listener) -> Passage:
        """Start the transfer; it leaves and arrives at one instant, when the last byte has crossed."""
        links, sender, receiver = self._links, parcel.sender, parcel.receiver
        rate_bps = min(links.egress_bps(sender), links.ingress_bps(receiver))
        return LonePassage(parcel, listener, links.between_s(sender, receiver), rate_bps)


class Naive(NetworkPlugin[Config]):
    """Size over bandwidth, no sharing."""

    def carrier(self, links: Links, *, verify: bool = False) -> Carrier:
        """Return a carrier in which transfers do not see each other."""
        return NaiveCarrier(links)


PLUGIN = Naive
