"""What devices draw, and what their energy costs.

Power is declared like the other quantities of a device: each field of :class:`Power` carries its
:class:`Quantity`, with zero as its default. Nothing in a run depends on it: energy is computed afterwards
(:mod:`fedsim.report.energy`).

A radio draws a constant power while it sends or receives, more in proportion to the rate, and its *tail*, a
lower power, for some time after a transfer. :data:`RADIOS` has measured ones by name.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, Field

from fedsim.config import Config, fault
from fedsim.fleet.device import QUANTITIES, Quantity, quantities_of
from fedsim.fleet.distributions import Fixed, Spread
from fedsim.quoting import nearest, quoted
from fedsim.units import Unit

_WATTS = {"w": 1.0, "mw": 1e-3}
_POWER = Spread("power")

Watts = Annotated[float, Unit("power")]


class Power(NamedTuple):
    """What one device draws, W, and how long its radio's tail is, s."""

    compute_power_w: Annotated[float, Quantity("compute_power", _POWER, _WATTS)] = 0
    """Power while it computes."""
    receive_power_w: Annotated[float, Quantity("receive_power", _POWER, _WATTS)] = 0
    """Power while it receives, whatever the rate."""
    transmit_power_w: Annotated[float, Quantity("transmit_power", _POWER, _WATTS)] = 0
    """Power while it transmits, whatever the rate."""
    receive_per_mbit_s_w: Annotated[float, Quantity("receive_per_mbit_s", _POWER, _WATTS)] = 0
    """Further power for each Mbit/s that it receives, which is energy for each Mbit."""
    transmit_per_mbit_s_w: Annotated[float, Quantity("transmit_per_mbit_s", _POWER, _WATTS)] = 0
    """Further power for each Mbit/s that it transmits, which is energy for each Mbit."""
    tail_power_w: Annotated[float, Quantity("tail_power", _POWER, _WATTS)] = 0
    """Power of the radio after a transfer."""
    radio_tail_s: Annotated[float, Quantity("radio_tail", Spread("time"), {"s": 1.0, "ms": 1e-3})] = 0
    """How long the radio draws that power, unless another transfer begins before."""
    idle_power_w: Annotated[float, Quantity("idle_power", _POWER, _WATTS)] = 0
    """Power while it waits within a dispatch."""


POWERS = quantities_of(Power)
"""These quantities by name."""

ALL_QUANTITIES = QUANTITIES | POWERS
"""All quantities that a device class has."""


class RadioConfig(Config):
    """A radio, in place of the powers for transfers."""

    base: Watts = Field("0 W", validate_default=True)
    """Power while anything is transferred."""
    up_per_mbit_s: Watts = Field("0 W", validate_default=True)
    """Further power for each Mbit/s up."""
    down_per_mbit_s: Watts = Field("0 W", validate_default=True)
    """Further power for each Mbit/s down."""
    tail: Annotated[float, Unit("time")] = Field("0 s", validate_default=True)
    """How long it stays active after a transfer."""
    tail_power: Watts = Field("0 W", validate_default=True)
    """Power meanwhile."""

    def quantities(self) -> dict[str, Fixed]:
        """Return the quantities of a device with this radio."""
        values = {
            "receive_power": self.base,
            "transmit_power": self.base,
            "receive_per_mbit_s": self.down_per_mbit_s,
            "transmit_per_mbit_s": self.up_per_mbit_s,
            "tail_power": self.tail_power,
            "radio_tail": self.tail,
        }
        return {name: Fixed(value) for name, value in values.items()}


RADIOS: dict[str, dict[str, str]] = {
    "wifi": {
        "base": "132.86 mW",
        "up_per_mbit_s": "283.17 mW",
        "down_per_mbit_s": "137.01 mW",
        "tail": "238.1 ms",
        "tail_power": "119.3 mW",
    },
    "3g": {
        "base": "817.88 mW",
        "up_per_mbit_s": "868.98 mW",
        "down_per_mbit_s": "122.12 mW",
        "tail": "8.09 s",
        "tail_power": "803.9 mW",
    },
    "lte": {
        "base": "1288.04 mW",
        "up_per_mbit_s": "438.39 mW",
        "down_per_mbit_s": "51.97 mW",
        "tail": "11.576 s",
        "tail_power": "1060 mW",
    },
    "5g": {
        "base": "2 W",
        "up_per_mbit_s": "28 mW",
        "down_per_mbit_s": "10 mW",
        "tail": "10 s",
        "tail_power": "250 mW",
    },
}
"""Measured radios.

``wifi``, ``3g`` and ``lte``: Huang et al., A Close Examination of Performance and Power Characteristics of 4G
LTE Networks, MobiSys 2012. ``5g``: slopes fitted to the measurements of Narayanan et al., A Variegated Look
at 5G in the Wild, SIGCOMM 2021, published with the paper (low band, not stand-alone, a phone of 2020). They
include the screen, so the base is that of ``lte`` and the 0.7 W by which 5G was above LTE at low rates. Its
tail is a default without a source.
"""


def radio_powers(name: str) -> dict[str, str]:
    """Return the quantities of a device with one of these radios, as a scenario spells them."""
    laws = RadioConfig.model_validate(RADIOS[name]).quantities()
    return {name: POWERS[name].spell(law.value) for name, law in laws.items()}


def _by_name(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if value not in RADIOS:
        raise fault(f"no radio is called {quoted(value)}", nearest(value, list(RADIOS)))
    return RADIOS[value]


Radio = Annotated[RadioConfig, BeforeValidator(_by_name, str | RadioConfig)]
"""A radio: its name, or a table."""


class EnergyConfig(Config):
    """Whether the energy of the run is computed, and what it costs beside that of clients.

    It is an estimate: the power of each phase times how long it lasted. The constants are in ``run.json``.
    """

    carbon_intensity: Annotated[float, Unit("carbon intensity")] | None = None
    """CO2 for each unit of energy; without it, none is computed."""
    server_power: Watts = Field("0 W", validate_default=True)
    """What the server draws from the start of the run to its end."""
    pue: float = Field(1.0, ge=1, le=10)
    """Power usage effectiveness of its data centre: all that is drawn for each unit that computers draw."""

    @property
    def server_power_w(self) -> float:
        """What the run costs at the server, cooling included, W."""
        return self.server_power * self.pue
