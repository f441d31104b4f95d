"""What one device is, and the base of the device classes.

A device class is a file in ``fedsim/fleet/devices``: a config whose fields are the quantities, with the
class's values as defaults. A scenario's group names a class and may change any quantity.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from fedsim.config import Config
from fedsim.fleet.quantity import Distribution, Fixed, Spread, Values, fixed, number
from fedsim.plugins import Plugin
from fedsim.rng import Key
from fedsim.units import Dimension

Speed = Annotated[Distribution, Spread("compute", positive=True)]
Memory = Annotated[Distribution, Spread("data size", positive=True)]
Rate = Annotated[Distribution, Spread("bit rate", positive=True)]
Delay = Annotated[Distribution, Spread("time")]
Variation = Annotated[Distribution, Spread(None)]

QUANTITIES: dict[str, Dimension | None] = {
    "speed": "compute",
    "memory": "data size",
    "up": "bit rate",
    "down": "bit rate",
    "latency": "time",
    "overhead": "time",
    "variation": None,
}
"""The quantities of a device and their dimensions; None for a plain number."""

POSITIVE = frozenset({"speed", "memory", "up", "down"})
"""Those that are above zero; the others may be zero."""


@dataclass(frozen=True, slots=True)
class Device:
    """One device's hardware and links.

    Attributes:
        speed_flops: Effective training speed in FLOP/s, not the peak of a data sheet.
        memory_bytes: Memory that a training job may use.
        up_bps: Uplink in bit/s.
        down_bps: Downlink in bit/s.
        latency_s: Delay of a message in one direction before its first byte arrives.
        overhead_s: Fixed time that each job takes besides its operations.
        variation: Standard deviation of the logarithm of a job's slow-down from run to run.
        label: The group's name, for tables.
    """

    speed_flops: float
    memory_bytes: float
    up_bps: float
    down_bps: float
    latency_s: float
    overhead_s: float
    variation: float
    label: str


class DeviceConfig(Config):
    """Quantities of a device class; a subclass gives defaults, written as in a scenario."""

    speed: Speed
    """Effective training speed."""
    memory: Memory
    """Memory that a training job may use."""
    up: Rate
    """Uplink."""
    down: Rate
    """Downlink."""
    latency: Delay
    """Delay of a message in one direction, before its first byte arrives."""
    overhead: Delay = fixed("0 s")
    """Fixed time that each job takes besides its operations."""
    variation: Variation = number(0)
    """Sigma of the log-normal load from run to run."""


class DevicePlugin(Plugin[DeviceConfig]):
    """Base of the device classes; the file's ``PLUGIN`` derives from it and sets ``Config``."""

    Config: ClassVar[type[Config]] = DeviceConfig

    def draw(self, num: int, key: Key) -> Mapping[str, float | Values]:
        """Return each of :data:`QUANTITIES`, in base units: one value for all, or an array ``[num]``.

        By default every quantity is drawn by itself, from a generator of its own. A class whose quantities
        belong together, such as a table of measured devices, overrides this.
        """
        drawn: dict[str, float | Values] = {}
        for name in QUANTITIES:
            law: Distribution = getattr(self.config, name)
            drawn[name] = law.value if isinstance(law, Fixed) else law.draw(num, key.child(name).numpy())
        return drawn
