"""Scenario entries of a fleet: a group of devices of one class or of one file, and the server."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from pydantic import Field, PositiveInt, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from fedsim.config import Config
from fedsim.errors import DataError
from fedsim.fleet.device import (
    QUANTITIES,
    Delay,
    DevicePlugin,
    Efficiency,
    Hazard,
    Memory,
    MemoryRate,
    Rate,
    Speed,
    Variation,
)
from fedsim.fleet.quantity import Fixed
from fedsim.fleet.table import read_table
from fedsim.plugins import load

DEVICES = "fedsim.fleet.devices"
"""The folder of the device classes."""

TABLE = "table"
"""The device class that reads a file."""


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
    efficiency: Efficiency | None = None
    """Share of the speed that training reaches, instead of the class's."""
    memory_bandwidth: MemoryRate | None = None
    """Bytes that memory moves in a second, instead of the class's."""
    drop_out: Hazard | None = None
    """Constant hazard of giving up while active, instead of the class's."""

    def profile(self) -> DevicePlugin:
        """Return the device class with this entry's quantities.

        Raises:
            UnknownPluginError: No device class is called so; the message names the nearest one.
        """
        plugin: type[DevicePlugin] = load(DEVICES, self.device)  # type: ignore[assignment]
        given = {name: getattr(self, name) for name in QUANTITIES if getattr(self, name) is not None}
        given |= self._file()
        return plugin(plugin.Config.model_validate(given))  # type: ignore[arg-type]

    def _file(self) -> dict[str, Any]:
        return {}


class GroupConfig(_Entry):
    """One ``[[fleet]]`` entry: clients whose devices are drawn from the same class, or come from a file."""

    count: PositiveInt
    """Number of clients."""
    device: str = "mid"
    """Device class: a file of ``fedsim/fleet/devices``, or a dotted path."""
    file: str | None = Field(default=None, min_length=1, validate_default=True)
    """CSV file of devices, instead of a class; a relative path starts at the working directory."""
    name: str | None = None
    """Name in tables; the file's or the device class's if left out."""

    @model_validator(mode="before")
    @classmethod
    def _reads_its_file(cls, entry: Any) -> Any:
        has_file = isinstance(entry, dict) and entry.get("file") is not None
        return {"device": TABLE, **entry} if has_file else entry

    @field_validator("file", mode="after")
    @classmethod
    def _usable(cls, file: str | None, info: ValidationInfo) -> str | None:
        device = info.data.get("device")
        if file is None:
            if device == TABLE:
                raise _fault("device class 'table' reads a file", 'add file = "phones.csv", say')
        elif device not in (TABLE, None):
            raise _fault(f"device class {device!r} reads no file", "leave out either device or file")
        else:
            # One with a fault of its own is missing here, and not worth a second fault.
            given = [name for name in QUANTITIES if info.data.get(name, ...) is not None]
            try:
                read_table(file).require(given, info.data.get("count"))
            except DataError as error:
                raise _fault(str(error)) from None
        return file

    @property
    def label(self) -> str:
        """The name in tables."""
        return self.name or (PurePath(self.file).stem if self.file else self.device)

    def _file(self) -> dict[str, Any]:
        return {"file": self.file} if self.file else {}


class ServerConfig(_Entry):
    """The ``[server]`` entry."""

    device: str = "server"
    """Device class: a file of ``fedsim/fleet/devices``, or a dotted path."""

    @field_validator("device", mode="after")
    @classmethod
    def _one_device(cls, device: str) -> str:
        if device == TABLE:
            raise _fault("device class 'table' is for groups", "name a class, and change its quantities")
        return device

    @field_validator("drop_out", mode="after")
    @classmethod
    def _stays(cls, drop_out: Hazard | None) -> Hazard | None:
        if drop_out is not None and drop_out != Fixed(0.0):
            raise _fault("a server does not drop out", "leave drop_out to the [[fleet]] groups")
        return drop_out


def _fault(problem: str, mend: str = "") -> PydanticCustomError:
    return PydanticCustomError("device", "{problem}", {"problem": problem, "mend": mend})
