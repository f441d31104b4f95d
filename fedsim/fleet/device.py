"""One device, and what fedsim knows of each of its quantities.

The fields of :class:`Device` are the only list of quantities: each carries a :class:`Quantity`. From these
records come the keys of device classes and of entries (:mod:`fedsim.fleet.device_class`), the columns of CSV
files (:mod:`fedsim.fleet.device_table`), the columns of a fleet, and those of the table of clients. So a new
quantity is a new field here, with a default, and the code that makes use of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from typing import Annotated, Any, get_type_hints

from fedsim.fleet.distributions import Distribution, Spread
from fedsim.units import Range, range_of, spell

_BIT_RATES = {"bps": 1.0, "kbps": 1e3, "mbps": 1e6, "gbps": 1e9}
_TIMES = {"s": 1.0, "ms": 1e-3}


@dataclass(frozen=True, slots=True)
class Quantity:
    """What fedsim knows of a quantity, which is one value or a distribution for the devices of a group.

    Attributes:
        name: Key in a scenario.
        doc: What it is, without a full stop.
        spread: What it measures, and which values it may have.
        units: In a CSV file, the unit in the name of its column, and that unit in base units.
        more: Further words on the values that a device class may give.
        attribute: Attribute of :class:`Device`, and column of the table of clients: the name and base unit.
        default: In base units, where a device class or a file gives none; None: each has to give it.
    """

    name: str
    doc: str
    spread: Spread
    units: Mapping[str, float]
    more: str = ""
    attribute: str = ""
    default: float | None = None

    @property
    def type(self) -> Any:
        """The pydantic type of a field: one value, or a table that names a distribution."""
        return Annotated[Distribution, self.spread]

    @property
    def written_default(self) -> Any:
        """The default as a scenario spells it; ``...``, as pydantic has it, where there is none."""
        if self.default is None:
            return ...
        dimension = self.spread.dimension
        return self.default if dimension is None else spell(self.default, dimension)

    @property
    def columns(self) -> Mapping[str, float]:
        """The columns of a CSV file that may give it, and the unit of each in base units."""
        return {f"{self.name}_{unit}".rstrip("_"): factor for unit, factor in self.units.items()}


@dataclass(frozen=True, slots=True)
class Device:
    """One device's hardware and links, in base units; the record of each field says what it is.

    Attributes:
        label: Name for tables: the row's of a table of devices that names its rows, else the group's.
    """

    speed_flops: Annotated[
        float,
        Quantity(
            "speed",
            "Effective training speed",
            Spread("compute", positive=True),
            {"flops": 1.0, "mflops": 1e6, "gflops": 1e9, "tflops": 1e12},
            ", not the peak of a data sheet",
        ),
    ]
    memory_bytes: Annotated[
        float,
        Quantity(
            "memory",
            "Memory that a training job may use",
            Spread("data size", positive=True),
            {"bytes": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9},
        ),
    ]
    up_bps: Annotated[float, Quantity("up", "Uplink", Spread("bit rate", positive=True), _BIT_RATES)]
    down_bps: Annotated[float, Quantity("down", "Downlink", Spread("bit rate", positive=True), _BIT_RATES)]
    latency_s: Annotated[
        float,
        Quantity(
            "latency",
            "Delay of a message in one direction, before its first byte arrives",
            Spread("time"),
            _TIMES,
        ),
    ]
    overhead_s: Annotated[
        float,
        Quantity("overhead", "Fixed time that each job takes besides its operations", Spread("time"), _TIMES),
    ] = 0
    variation: Annotated[
        float,
        Quantity(
            "variation",
            "Sigma of the log-normal load from run to run",
            Spread(None, plain=Range(0, 3)),
            {"": 1.0},
        ),
    ] = 0
    label: str = ""
    efficiency: Annotated[
        float,
        Quantity(
            "efficiency",
            "Share of the speed that training reaches",
            Spread(None, positive=True, plain=Range(1e-6, 1)),
            {"": 1.0},
            "; 1 where the speed is effective already",
        ),
    ] = 1
    memory_bandwidth_bytes_per_s: Annotated[
        float,
        Quantity(
            "memory_bandwidth",
            "Bytes that memory moves in a second",
            Spread("data rate", positive=True),
            {"gbytes_per_s": 1e9},
            "; the default is so fast that no job waits for it",
        ),
    ] = range_of("data rate").most
    drop_out_per_s: Annotated[
        float,
        Quantity(
            "drop_out",
            "Constant hazard of giving up while active",
            Spread("hazard"),
            {"per_h": 1 / 3600},
            ', such as "0.1 /h": one in ten hours of activity; a time t is survived with the '
            "probability exp(-drop_out * t)",
        ),
    ] = 0


def _quantities() -> dict[str, Quantity]:
    found = {}
    hints = get_type_hints(Device, include_extras=True)
    for field in fields(Device):
        for quantity in getattr(hints[field.name], "__metadata__", ()):
            default = None if field.default is MISSING else field.default
            found[quantity.name] = replace(quantity, attribute=field.name, default=default)
    return found


QUANTITIES = _quantities()
"""The quantities of a device by name."""
