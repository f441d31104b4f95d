"""No network: every parcel arrives at the instant at which it is sent, and only its bytes are counted."""

from __future__ import annotations

import math

from fedsim.config import Config
from fedsim.network.base import Carrier, Links, Listener, LonePassage, NetworkPlugin, Parcel, Passage


class InstantCarrier:
    """Carries each parcel in no time."""

    def carry(self, parcel: Parcel, listener: Listener) -> Passage:
        """Start the transfer; it ends at this very instant, after what is running now."""
        return LonePassage(parcel, listener, latency_s=0.0, bps=math.inf)


class NoNetwork(NetworkPlugin[Config]):
    """Transfers take no time."""

    def carrier(self, links: Links, *, verify: bool = False) -> Carrier:
        """Return a carrier that ignores the links."""
        return InstantCarrier()

    def alone_s(self, links: Links, sender: int, receiver: int, num_bytes: int) -> float:
        """Return 0."""
        return 0.0


PLUGIN = NoNetwork
