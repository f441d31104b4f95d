"""No network: every parcel arrives at the instant at which it is sent, and only its bytes are counted."""

from __future__ import annotations

from fedsim.clock import call_after
from fedsim.config import Config
from fedsim.network.base import Carrier, Listener, NetworkPlugin, Parcel, Passage
from fedsim.network.links import Links


class InstantCarrier:
    """Carries each parcel in no time."""

    def carry(self, parcel: Parcel, listener: Listener) -> Passage:
        """Start the transfer; it ends at this very instant, after what is running now."""
        return call_after(0.0, _end, parcel, listener)


class NoNetwork(NetworkPlugin[Config]):
    """Transfers take no time."""

    def carrier(self, links: Links) -> Carrier:
        """Return a carrier that ignores the links."""
        return InstantCarrier()


def _end(parcel: Parcel, listener: Listener) -> None:
    listener.left()
    listener.arrived(parcel)


PLUGIN = NoNetwork
