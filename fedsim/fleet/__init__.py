"""Devices: what a client's hardware and links can do and when it is there, and fleets of them as arrays."""

from fedsim.fleet.availability.base import Availability, AvailabilityPlugin
from fedsim.fleet.availability.sampling import sample_available
from fedsim.fleet.device import Device, DeviceConfig, DevicePlugin
from fedsim.fleet.fleet import Fleet, build_fleet
from fedsim.fleet.groups import GroupConfig, ServerConfig
from fedsim.fleet.quantity import Fixed

__all__ = [
    "Availability",
    "AvailabilityPlugin",
    "Device",
    "DeviceConfig",
    "DevicePlugin",
    "Fixed",
    "Fleet",
    "GroupConfig",
    "ServerConfig",
    "build_fleet",
    "sample_available",
]
