"""Moving parcels over links through time: what a transfer costs, and who gets in whose way."""

from fedsim.network.base import Carrier, Listener, NetworkPlugin, Parcel, Passage
from fedsim.network.links import Links

__all__ = ["Carrier", "Links", "Listener", "NetworkPlugin", "Parcel", "Passage"]
