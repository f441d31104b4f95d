"""Moving parcels over links through time: what a transfer costs, and who gets in whose way."""

from fedsim.network.base import Carrier, Listener, NetworkPlugin, Parcel, Passage
from fedsim.network.capacity import Capacity
from fedsim.network.link_traces import LinkTraceConfig, LinkTraces
from fedsim.network.links import InGroups, Links, TraceOf
from fedsim.network.overhead import NO_OVERHEAD, OverheadConfig

__all__ = [
    "NO_OVERHEAD",
    "Capacity",
    "Carrier",
    "InGroups",
    "LinkTraceConfig",
    "LinkTraces",
    "Links",
    "Listener",
    "NetworkPlugin",
    "OverheadConfig",
    "Parcel",
    "Passage",
    "TraceOf",
]
