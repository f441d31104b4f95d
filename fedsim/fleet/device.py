"""What one device is, and the base of the device classes.

A device class is a file in ``fedsim/fleet/devices``: a config whose fields are the quantities, with the
class's values as defaults. A scenario's group names a class and may change any quantity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedsim.config import Config
from fedsim.fleet.quantity import Distribution, Fixed, Spread, Values, fixed, number
from fedsim.plugins import Plugin
from fedsim.rng import Key
from fedsim.units import Dimension, Range, range_of

SPREADS: dict[str, Spread] = {
    "speed": Spread("compute", positive=True),
    "memory": Spread("data size", positive=True),
    "up": Spread("bit rate", positive=True),
    "down": Spread("bit rate", positive=True),
    "latency": Spread("time"),
    "overhead": Spread("time"),
    "variation": Spread(None, plain=Range(0, 3)),
    "efficiency": Spread(None, positive=True, plain=Range(1e-6, 1)),
    "memory_bandwidth": Spread("data rate", positive=True),
    "drop_out": Spread("hazard"),
}
"""The quantities of a device: what each measures and which values it may have, wherever it is read."""

Speed = Annotated[Distribution, SPREADS["speed"]]
Memory = Annotated[Distribution, SPREADS["memory"]]
Rate = Annotated[Distribution, SPREADS["up"]]
Delay = Annotated[Distribution, SPREADS["latency"]]
Variation = Annotated[Distribution, SPREADS["variation"]]
Efficiency = Annotated[Distribution, SPREADS["efficiency"]]
MemoryRate = Annotated[Distribution, SPREADS["memory_bandwidth"]]
Hazard = Annotated[Distribution, SPREADS["drop_out"]]

Rows = NDArray[np.int64]

QUANTITIES: dict[str, Dimension | None] = {name: spread.dimension for name, spread in SPREADS.items()}
"""The quantities and their dimensions; None for a plain number."""

TRACED = {"up": "up_trace", "down": "down_trace"}
"""Quantities whose place a trace may take, and the key of an entry that gives it."""

POSITIVE = frozenset(name for name, spread in SPREADS.items() if spread.positive)
"""Those that are above zero; the others may be zero."""

UNLIMITED_BYTES_PER_S = range_of("data rate").most
"""A memory bandwidth for which no job ever waits (1 EB/s), so that operations alone decide its time."""


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
        label: Name for tables: the row's of a table of devices that names its rows, else the group's.
        efficiency: Share of the speed that training reaches; 1 where the speed is effective already.
        memory_bandwidth_bytes_per_s: Bytes that memory moves in a second.
        drop_out_per_s: Constant hazard of giving up while active, in events a second: the probability
            of lasting ``t`` seconds is ``exp(-drop_out_per_s * t)``.
    """

    speed_flops: float
    memory_bytes: float
    up_bps: float
    down_bps: float
    latency_s: float
    overhead_s: float
    variation: float
    label: str
    efficiency: float = 1.0
    memory_bandwidth_bytes_per_s: float = UNLIMITED_BYTES_PER_S
    drop_out_per_s: float = 0.0


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
    efficiency: Efficiency = number(1)
    """Share of the speed that training reaches; 1 where the speed is effective already."""
    memory_bandwidth: MemoryRate = fixed("1 EB/s")
    """Bytes that memory moves in a second; the default is so fast that no job waits for it."""
    drop_out: Hazard = fixed("0 /s")
    """Constant hazard of giving up while active, such as "0.1 /h": one in ten hours of activity."""


class DevicePlugin(Plugin[DeviceConfig]):
    """Base of the device classes; the file's ``PLUGIN`` derives from it and sets ``Config``."""

    Config: ClassVar[type[Config]] = DeviceConfig

    def draw(self, num: int, key: Key) -> Mapping[str, float | Values]:
        """Return each of :data:`QUANTITIES`, in base units: one value for all, or an array ``[num]``.

        By default every quantity is drawn by itself, from a generator of its own. A class whose quantities
        belong together, such as a table of measured devices, overrides this.
        """
        return {
            name: draw_quantity(name, getattr(self.config, name), num, key.child(name)) for name in QUANTITIES
        }

    def labels(self, num: int, key: Key) -> tuple[Sequence[str], Rows] | None:
        """Return names, and for each device the place of its own among them, ``[num]``.

        By default None: the devices are called as their group is. ``key`` is that of :meth:`draw`.
        """
        return None


def draw_quantity(name: str, law: Distribution, num: int, key: Key) -> float | Values:
    """Return a quantity of ``num`` devices in base units: one value for all, or an array ``[num]``.

    What is drawn beyond the quantity's range becomes its end; zero stays where it may be.
    """
    if isinstance(law, Fixed):
        return law.value
    limits, drawn = SPREADS[name].limits, law.draw(num, key.numpy())
    clipped = np.clip(drawn, limits.least, limits.most)
    return clipped if name in POSITIVE else np.where(drawn == 0, 0.0, clipped)
