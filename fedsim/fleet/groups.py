"""Scenario entries of a fleet: a group of devices of one class, and the server."""

from __future__ import annotations

from pydantic import PositiveInt

from fedsim.config import Config
from fedsim.fleet.device import QUANTITIES, Delay, DevicePlugin, Memory, Rate, Speed, Variation
from fedsim.plugins import load

DEVICES = "fedsim.fleet.devices"
"""The folder of the device classes."""


class _Entry(Config):
    """A device class with quantities that replace its own."""

    device: str
    """Device class: a file of ``fedsim/fleet/devices``, or a dotted path."""
    model: str | None = None
    """Label of the architecture trained here; the scenario's own if left out."""
    speed: Speed | None = None
    """Effective training speed, instead of the class's."""
    memory: Memory | None = None
    """Memory that a training job may use, instead of the class's."""
    up: Rate | None = None
    """Uplink, instead of the class's."""
    down: Rate | None = None
    """Downlink, instead of the class's."""
    latency: Delay | None = None
    """Delay of a message in one direction before its first byte arrives, instead of the class's."""
    overhead: Delay | None = None
    """Fixed time of each job, instead of the class's."""
    variation: Variation | None = None
    """Sigma of the log-normal load from run to run, instead of the class's."""

    def profile(self) -> DevicePlugin:
        """Return the device class with this entry's quantities.

        Raises:
            UnknownPluginError: No device class is called so; the message names the nearest one.
        """
        plugin: type[DevicePlugin] = load(DEVICES, self.device)  # type: ignore[assignment]
        given = {name: getattr(self, name) for name in QUANTITIES if getattr(self, name) is not None}
        return plugin(plugin.Config.model_validate(given))  # type: ignore[arg-type]


class GroupConfig(_Entry):
    """One ``[[fleet]]`` entry: clients whose devices are drawn from the same class."""

    count: PositiveInt
    """Number of clients."""
    device: str = "mid"
    """Device class: a file of ``fedsim/fleet/devices``, or a dotted path."""
    name: str | None = None
    """Name in tables; the device class's if left out."""

    @property
    def label(self) -> str:
        """The name in tables."""
        return self.name or self.device


class ServerConfig(_Entry):
    """The ``[server]`` entry."""

    device: str = "server"
    """Device class: a file of ``fedsim/fleet/devices``, or a dotted path."""
