"""Scenario entries of a fleet: a group of devices of one class or of one file, and the server."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import PurePath
from typing import Annotated, Any, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from fedsim.config import AsTuple, Config, fault
from fedsim.fleet.battery import BatteryConfig
from fedsim.fleet.device import QUANTITIES
from fedsim.fleet.device_class import LOAD, DevicePlugin, check_values, with_overrides
from fedsim.fleet.distributions import Distribution, Fixed
from fedsim.fleet.power import ALL_QUANTITIES, POWERS, Radio, RadioConfig
from fedsim.input_paths import InputPath
from fedsim.network import LinkTraceConfig
from fedsim.network.link_traces import TRACED, LinkTrace, one_rate
from fedsim.plugins import load
from fedsim.quoting import quoted
from fedsim.ranges import Clients, PositiveWeight

DEVICES = "fedsim.fleet.devices"
"""The family of the device classes."""

Weights = Annotated[dict[str, PositiveWeight], Field(min_length=1, max_length=100)]
"""Labels of architectures, with weights above zero."""

TABLE = "table"
"""The device class that reads a file."""

_STAND_IN = Fixed(1.0)  # for a rate whose place a trace takes


def no_table(device: str) -> str:
    """Validate the device class of an entry that is no group."""
    if device == TABLE:
        raise fault("device class 'table' is for groups", "name another class, and change it")
    return device


@partial(with_overrides, quantities=QUANTITIES)
class _Entry(Config):
    """A device class with quantities that replace its own."""

    device: str
    """Device class: one of ``fedsim.fleet.devices``, or a dotted path."""
    model: str | None = None
    """Label of the architecture trained here; the scenario's own if left out."""

    def profile(self) -> DevicePlugin:
        """Return the device class with this entry's quantities."""
        plugin: type[DevicePlugin] = load(DEVICES, self.device)  # type: ignore[assignment]
        profile = plugin(plugin.Config.model_validate(self._given()))
        check_values(self.device, profile)
        return profile

    def explicit(self) -> Self:
        """Return the entry with the quantities of its device class written out, save those of power."""
        config = self.profile().config
        return self.model_copy(update={name: getattr(config, name) for name in (*QUANTITIES, LOAD)})

    def _given(self) -> dict[str, Any]:
        names = (*ALL_QUANTITIES, LOAD)
        return {name: law for name in names if (law := getattr(self, name, None)) is not None}


@partial(with_overrides, quantities=POWERS)
class _PoweredEntry(_Entry):
    """The same, with what devices draw."""


class GroupConfig(_PoweredEntry):
    """One ``[[fleet]]`` entry: clients whose devices are drawn from the same class, or come from a file."""

    count: Clients
    """Number of clients."""
    device: str = "mid"
    """Device class: one of ``fedsim.fleet.devices``, or a dotted path."""
    up_trace: LinkTrace | None = None
    """Capacity of the uplink over time, instead of `up`: a file, a list of files, or a table of file, name
    and shift. Only the network model `fluid` follows it."""
    down_trace: LinkTrace | None = None
    """Capacity of the downlink over time, instead of `down`, likewise."""
    radio: Radio | None = None
    """What its radio draws, instead of the powers for transfers: wifi, 3g, lte or 5g, or a table."""
    battery: BatteryConfig | None = None
    """Batteries of the clients: a table of capacity, level, floor, charge_power and plugged."""
    file: InputPath | None = Field(default=None, validate_default=True)
    """CSV file of devices, instead of a class."""
    name: str | None = None
    """Name in tables; the file's or the device class's if left out."""
    models: Weights | None = None
    """Instead of `model`, architectures by share: labels and weights, such as { small = 3, large = 1 }."""
    models_by_size: Annotated[tuple[Weights, ...], AsTuple, Field(min_length=1)] | None = None
    """Instead of `model`, such shares for each of several equal parts of the group's clients, from those with
    the fewest training samples to those with the most."""

    @model_validator(mode="before")
    @classmethod
    def _reads_its_file(cls, entry: Any) -> Any:
        has_file = isinstance(entry, dict) and entry.get("file") is not None
        return {"device": TABLE, **entry} if has_file else entry

    @field_validator("file", mode="after")
    @classmethod
    def _one_source(cls, file: str | None, info: ValidationInfo) -> str | None:
        device = info.data.get("device")
        if file is None and device == TABLE:
            raise fault("device class 'table' reads a file", 'add file = "phones.csv", say')
        if file is not None and device not in (TABLE, None):
            raise fault(f"device class {quoted(device)} reads no file", "leave out device or file")
        return file

    @field_validator("models", "models_by_size", mode="after")
    @classmethod
    def _one_way(cls, value: Any, info: ValidationInfo) -> Any:
        given = [name for name in ("model", "models") if info.data.get(name) is not None]
        if value is not None and given:
            mend = "give model, models or models_by_size"
            raise fault(f"{given[0]} and {info.field_name} both say which architecture", mend)
        return value

    @property
    def shares(self) -> tuple[Weights, ...]:
        """Shares of architectures for each part of the clients; none where all have one."""
        return self.models_by_size or (() if self.models is None else (self.models,))

    @field_validator(*TRACED.values(), mode="after")
    @classmethod
    def _one_rate(cls, trace: LinkTraceConfig | None, info: ValidationInfo) -> LinkTraceConfig | None:
        return one_rate(trace, info)

    @field_validator("radio", mode="after")
    @classmethod
    def _one_radio(cls, radio: RadioConfig | None, info: ValidationInfo) -> RadioConfig | None:
        given = [name for name in RadioConfig().quantities() if info.data.get(name) is not None]
        if radio is not None and given:
            raise fault(f"a radio takes the place of {quoted(given[0])}, which is given too", "leave one out")
        return radio

    @property
    def link_traces(self) -> Mapping[str, LinkTraceConfig]:
        """The traces by quantity, of those that have one."""
        return {name: trace for name, key in TRACED.items() if (trace := getattr(self, key)) is not None}

    @property
    def label(self) -> str:
        """The name in tables."""
        return self.name or (PurePath(self.file).stem if self.file else self.device)

    def explicit(self) -> Self:
        """Return the entry with its name and the quantities of its device class, save those of traces."""
        return super().explicit().model_copy(update={"name": self.label, **dict.fromkeys(self.link_traces)})

    def _given(self) -> dict[str, Any]:
        file = {"file": self.file} if self.file else {}
        radio = self.radio.quantities() if self.radio else {}
        return super()._given() | radio | file | dict.fromkeys(self.link_traces, _STAND_IN)


class ServerConfig(_Entry):
    """The ``[server]`` entry."""

    device: str = "server"
    """Device class: one of ``fedsim.fleet.devices``, or a dotted path."""

    _one_device = field_validator("device", mode="after")(no_table)

    @field_validator("drop_out", mode="after")
    @classmethod
    def _stays(cls, drop_out: Distribution | None) -> Distribution | None:
        if drop_out is not None and drop_out != Fixed(0.0):
            raise fault("a server does not drop out", "leave drop_out to the [[fleet]] groups")
        return drop_out
