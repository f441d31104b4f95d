"""Batteries: what a group of clients has to spend, and when it is charged.

A group without a battery has its energy from the grid. What devices draw is in :mod:`fedsim.fleet.power`;
:mod:`fedsim.runtime.clients.batteries` subtracts it while a run goes on.
"""

# The base of a kind of plugin may be abstract: it is only compared with, never made.
# mypy: disable-error-code="type-abstract"

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, Self, get_args

import numpy as np
from pydantic import Discriminator, Field, Tag, model_validator

from fedsim.config import Config, fault
from fedsim.fleet.availability.base import Availability, AvailabilityPlugin
from fedsim.fleet.distributions import Distribution, Fixed, Spread
from fedsim.params import Array
from fedsim.plugin_choice import Kind, NamedChoice, OrName
from fedsim.ranges import Share
from fedsim.rng import Key
from fedsim.units import Range

_CAPACITY = Spread("energy", positive=True)
_LEVEL = Spread(None, plain=Range(0, 1))
_CHARGE = Spread("power")

WithAvailability = Literal["available", "away"]
"""Words for a battery that is charged while its client is there, or while it is away."""


class PluggedChoice(NamedChoice):
    """When devices are plugged in: a model of availability."""

    KIND = Kind(
        "availability model",
        "fedsim.fleet.availability",
        AvailabilityPlugin,
        elsewhere={"never": "leave out charge_power and plugged"},
    )


def _form(plugged: Any) -> str:
    return "word" if plugged in get_args(WithAvailability) else "model"


Plugged = Annotated[
    Annotated[WithAvailability, Tag("word")] | Annotated[OrName[PluggedChoice], Tag("model")],
    Discriminator(_form),
]


class BatteryConfig(Config):
    """The batteries of a group's clients, each a value or a distribution."""

    capacity: Annotated[Distribution, _CAPACITY]
    """Energy of a full battery."""
    level: Annotated[Distribution, _LEVEL] = Field(1.0, validate_default=True)
    """Share of it that is there when the run begins."""
    floor: Share = 0.2
    """Below this share a client is not asked; work that it has begun goes on until the battery is empty."""
    charge_power: Annotated[Distribution, _CHARGE] | None = None
    """Power while it is charged; if left out, it never is."""
    plugged: Plugged | None = None
    """When it is charged: available or away, as its client is, or an availability model of its own."""

    @model_validator(mode="after")
    def _is_charged(self) -> Self:
        if (self.charge_power is None) != (self.plugged is None):
            given, other, example = "charge_power", "plugged", 'plugged = "away"'
            if self.charge_power is None:
                given, other, example = other, given, 'charge_power = "7 W"'
            problem = f"{given} is given without {other}, so nothing is ever charged"
            raise fault(problem, f"add {example}, say, or leave {given} out")
        return self

    def draw(self, num: int, key: Key) -> Batteries:
        """Return the batteries of ``num`` clients; each quantity is drawn by itself.

        Raises:
            DataError: A file of the model of ``plugged`` that cannot be used as asked.
        """
        charge = self.charge_power or Fixed(0.0)
        plugged: Availability | str | None = None
        if isinstance(self.plugged, PluggedChoice):
            plugged = self.plugged.make().bind(num, key.child("plugged"))
        elif self.plugged is not None:
            plugged = self.plugged
        return Batteries(
            _drawn(_CAPACITY, self.capacity, num, key.child("capacity")),
            _drawn(_LEVEL, self.level, num, key.child("level")),
            self.floor,
            _drawn(_CHARGE, charge, num, key.child("charge_power")),
            plugged,
        )


class Battery(NamedTuple):
    """The battery of one client: capacity, level at the start and floor, J, and the power of charging, W."""

    capacity_j: float
    level_j: float
    floor_j: float
    charge_w: float

    def allows(self, level_j: float) -> bool:
        """Say whether its client may be asked at a level."""
        return level_j > 0 and level_j >= self.floor_j


@dataclass(frozen=True, slots=True, eq=False)
class Batteries:
    """The batteries of a group's clients.

    Attributes:
        capacity_j: Energy of a full one, J, ``[num]``.
        level: Share of it at the start, ``[num]``.
        floor: Share below which a client is not asked.
        charge_w: Power while it is charged, W, ``[num]``.
        plugged: When that is; a word of :data:`WithAvailability` where it follows the client's availability,
            None for never.
    """

    capacity_j: Array
    level: Array
    floor: float
    charge_w: Array
    plugged: Availability | str | None

    def of(self, offset: int) -> Battery:
        """Return one of them."""
        capacity_j = float(self.capacity_j[offset])
        level_j, floor_j = capacity_j * float(self.level[offset]), capacity_j * self.floor
        return Battery(capacity_j, level_j, floor_j, float(self.charge_w[offset]))


def _drawn(spread: Spread, law: Distribution, num: int, key: Key) -> Array:
    values = spread.draw(law, num, key)
    # What all have is kept once.
    return values.astype(np.float32) if isinstance(values, np.ndarray) else np.broadcast_to(values, num)
