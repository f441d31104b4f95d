"""Moving parcels over links through time: what a transfer costs, and who gets in whose way."""

from fedsim.network.base import (
    Carrier,
    Links,
    Listener,
    NetworkPlugin,
    Parcel,
    Passage,
    TimetableCarrier,
    has_timetable,
)
from fedsim.network.link_traces import LinkTraceConfig
from fedsim.network.overhead import NO_OVERHEAD, OverheadConfig

__all__ = [
    "NO_OVERHEAD",
    "Carrier",
    "LinkTraceConfig",
    "Links",
    "Listener",
    "NetworkPlugin",
    "OverheadConfig",
    "Parcel",
    "Passage",
    "TimetableCarrier",
    "has_timetable",
]
