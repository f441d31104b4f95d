"""Devices: what a client's hardware and links can do, and fleets of them as arrays."""

from fedsim.fleet.device import Device, DeviceConfig, DevicePlugin
from fedsim.fleet.fleet import Fleet, build_fleet
from fedsim.fleet.groups import GroupConfig, ServerConfig
from fedsim.fleet.quantity import Fixed

__all__ = [
    "Device",
    "DeviceConfig",
    "DevicePlugin",
    "Fixed",
    "Fleet",
    "GroupConfig",
    "ServerConfig",
    "build_fleet",
]
