"""Moving parcels over links through time: what a transfer costs, and who gets in whose way."""

from fedsim.network.base import Carrier, Listener, NetworkPlugin, Parcel, Passage
from fedsim.network.links import InGroups, Links
from fedsim.network.overhead import NO_OVERHEAD, OverheadConfig
from fedsim.network.traces import LinkTraceConfig, Traces

__all__ = [
    "NO_OVERHEAD",
    "Carrier",
    "InGroups",
    "LinkTraceConfig",
    "Links",
    "Listener",
    "NetworkPlugin",
    "OverheadConfig",
    "Parcel",
    "Passage",
    "Traces",
]
