"""Devices: what a client's hardware and links can do and when it is there, and fleets of them as arrays."""

from fedsim.fleet.availability.available_sampling import sample_available
from fedsim.fleet.availability.base import Availability, AvailabilityPlugin, Readiness
from fedsim.fleet.device import Device
from fedsim.fleet.device_class import DevicePlugin
from fedsim.fleet.entries import GroupConfig, ServerConfig
from fedsim.fleet.fleet import Fleet, build_fleet

__all__ = [
    "Availability",
    "AvailabilityPlugin",
    "Device",
    "DevicePlugin",
    "Fleet",
    "GroupConfig",
    "Readiness",
    "ServerConfig",
    "build_fleet",
    "sample_available",
]
