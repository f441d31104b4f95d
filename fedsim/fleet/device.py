"""One device, and what fedsim knows of each of its quantities.

The fields of :class:`Device` are the only list of quantities that a run depends on: each carries a
:class:`Quantity`, but for the label and the load, which are no numbers. (Those of power, on which no run
depends, are in :mod:`fedsim.fleet.power`.) From these records come the keys of device classes and of entries
(:mod:`fedsim.fleet.device_class`), the columns of CSV files (:mod:`fedsim.fleet.device_table`), those of a
fleet, and those of the table of clients. So a new quantity is a new field here, with a default, and the code
that makes use of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple, get_type_hints

from fedsim.config import documented
from fedsim.fleet.distributions import Distribution, Spread
from fedsim.fleet.load import Load
from fedsim.units import Range, range_of, spell

_FLOPS = {"flops": 1.0, "mflops": 1e6, "gflops": 1e9, "tflops": 1e12}
_BYTES = {"bytes": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9}
_BIT_RATES = {"bps": 1.0, "kbps": 1e3, "mbps": 1e6, "gbps": 1e9}
_TIMES = {"s": 1.0, "ms": 1e-3}


@dataclass(frozen=True, slots=True)
class Quantity:
    """What fedsim knows of a quantity, which is one value or a distribution for the devices of a group."""

    name: str
    spread: Spread
    units: Mapping[str, float]
    doc: str = ""
    attribute: str = ""
    default: float | None = None

    @property
    def type(self) -> Any:
        """The pydantic type of a field: one value, or a table that names a distribution."""
        return Annotated[Distribution, self.spread]

    @property
    def written_default(self) -> Any:
        """The default as a scenario spells it; ``...``, as pydantic has it, where there is none."""
        return ... if self.default is None else self.spell(self.default)

    def spell(self, value: float) -> Any:
        """Return a value as a scenario spells it."""
        dimension = self.spread.dimension
        return value if dimension is None else spell(value, dimension)

    @property
    def columns(self) -> Mapping[str, float]:
        """The columns of a CSV file that may give it, and the unit of each in base units."""
        return {f"{self.name}_{unit}".rstrip("_"): factor for unit, factor in self.units.items()}


class Device(NamedTuple):
    """One device's hardware and links, in base units."""

    speed_flops: Annotated[float, Quantity("speed", Spread("compute", positive=True), _FLOPS)]
    """Effective training speed. It is not the peak of a data sheet."""
    memory_bytes: Annotated[float, Quantity("memory", Spread("data size", positive=True), _BYTES)]
    """Memory that a training job may use."""
    up_bps: Annotated[float, Quantity("up", Spread("bit rate", positive=True), _BIT_RATES)]
    """Uplink."""
    down_bps: Annotated[float, Quantity("down", Spread("bit rate", positive=True), _BIT_RATES)]
    """Downlink."""
    latency_s: Annotated[float, Quantity("latency", Spread("time"), _TIMES)]
    """Delay of a message in one direction, before its first byte arrives."""
    overhead_s: Annotated[float, Quantity("overhead", Spread("time"), _TIMES)] = 0
    """Fixed time that each job takes besides its operations."""
    variation: Annotated[float, Quantity("variation", Spread(None, plain=Range(0, 3)), {"": 1.0})] = 0
    """Sigma of a log-normal factor with median 1 on the time of each job."""
    label: str = ""
    """Name for tables: the row's of a table of devices that names its rows, else the group's."""
    efficiency: Annotated[
        float, Quantity("efficiency", Spread(None, positive=True, plain=Range(1e-6, 1)), {"": 1.0})
    ] = 1
    """Share of the speed that training reaches. It is 1 where the speed is effective already."""
    memory_bandwidth_bytes_per_s: Annotated[
        float, Quantity("memory_bandwidth", Spread("data rate", positive=True), {"gbytes_per_s": 1e9})
    ] = range_of("data rate").most
    """Bytes that memory moves in a second. The default is so fast that no job waits for it."""
    drop_out_per_s: Annotated[float, Quantity("drop_out", Spread("hazard"), {"per_h": 1 / 3600})] = 0
    """Constant hazard of giving up while active. With "0.1 /h" a device gives up once in ten hours of
    activity: it lasts a time t with the probability exp(-drop_out * t)."""
    load: Load | None = None
    """Law of a further factor on the time of each job; None: there is none."""

    @property
    def mean_load(self) -> float:
        """Mean of that factor."""
        return 1.0 if self.load is None else self.load.mean


def quantities_of(record: Any) -> dict[str, Quantity]:
    """Return the quantities that the fields of a named tuple carry, by name."""
    quantities = {}
    hints = get_type_hints(record, include_extras=True)
    docs = documented(record.__module__).get(record.__qualname__, {})
    for name in record._fields:
        for quantity in getattr(hints[name], "__metadata__", ()):
            doc, default = docs.get(name, ""), record._field_defaults.get(name)
            quantities[quantity.name] = replace(quantity, doc=doc, attribute=name, default=default)
    return quantities


QUANTITIES = quantities_of(Device)
"""The quantities of a device by name."""
