"""Quantities with a dimension: "20 Mbit/s" in a scenario, a plain float in SI base units everywhere else.

A quantity is written as a number, perhaps a space, and a unit; a bare number is a mistake. Units are spelt as
the SI spells them, so case matters: ``mW`` is not ``MW``, ``kB`` is 1000 bytes and ``KiB`` is 1024. Bit rates
may also be written ``Mbps``, or in bytes (``MB/s``, eight times as much).

Each dimension has a range (:func:`range_of`), wide enough for any device, and narrow enough that times fit
into 64 bits of nanoseconds and no quotient of two quantities is infinite.

The pydantic types (:class:`Unit`; :data:`Seconds` for example) read such strings, give floats, and write
strings that read back as exactly the same float. A default is best written as a user would write it,
``Field(default="90 s", validate_default=True)``: the JSON schema then shows it so.
"""

from __future__ import annotations

import difflib
import math
import re
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache, cached_property, partial
from typing import Annotated, Any, Literal

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from fedsim.errors import UnitError
from fedsim.numerals import NUMBER, UNSIGNED
from fedsim.quoting import quoted

Dimension = Literal[
    "time",
    "data size",
    "bit rate",
    "data rate",
    "compute",
    "power",
    "energy",
    "mass",
    "hazard",
    "carbon intensity",
]


@dataclass(frozen=True, slots=True)
class Range:
    """The values that a quantity may have, in its base unit."""

    least: float
    most: float

    def holds(self, value: float, *, positive: bool) -> bool:
        """Return whether a value is in the range; zero is, unless only positive values are allowed."""
        return self.least <= value <= self.most or (value == 0 and not positive)


ANY = Range(0.0, math.inf)
"""The range of a quantity that has none of its own."""


@dataclass(frozen=True)
class _Scale:
    """A dimension: its name, an example, units that are written and read, range, and units only read."""

    phrase: str
    example: str
    shown: dict[str, float]
    least: str
    most: str
    also: dict[str, float] = field(default_factory=dict)

    @cached_property
    def units(self) -> dict[str, float]:
        """All units, in base units."""
        return self.shown | self.also


_SCALES: dict[Dimension, _Scale] = {
    "time": _Scale(
        "a time",
        "150 ms",
        {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600, "d": 86400},
        "1 ns",
        "10000 d",
        {"us": 1e-6, "μs": 1e-6},
    ),
    "data size": _Scale(
        "a data size",
        "4 GiB",
        {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12},
        "1 B",
        "1000 TB",
        {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40},
    ),
    "bit rate": _Scale(
        "a bit rate",
        "20 Mbit/s",
        {"bit/s": 1, "kbit/s": 1e3, "Mbit/s": 1e6, "Gbit/s": 1e9, "Tbit/s": 1e12},
        "0.001 bit/s",
        "1000 Tbit/s",
        {"bps": 1, "kbps": 1e3, "Mbps": 1e6, "Gbps": 1e9, "Tbps": 1e12}
        | {"B/s": 8, "kB/s": 8e3, "MB/s": 8e6, "GB/s": 8e9},
    ),
    "data rate": _Scale(
        "a data rate",
        "10 GB/s",
        {"B/s": 1, "kB/s": 1e3, "MB/s": 1e6, "GB/s": 1e9, "TB/s": 1e12, "PB/s": 1e15, "EB/s": 1e18},
        "1 B/s",
        "1 EB/s",
    ),
    "compute": _Scale(
        "a computing speed",
        "60 GFLOP/s",
        {"FLOP/s": 1, "kFLOP/s": 1e3, "MFLOP/s": 1e6, "GFLOP/s": 1e9, "TFLOP/s": 1e12, "PFLOP/s": 1e15},
        "1 FLOP/s",
        "1000 PFLOP/s",
    ),
    "power": _Scale("a power", "4.5 W", {"mW": 1e-3, "W": 1, "kW": 1e3}, "0.001 mW", "1e6 kW"),
    "energy": _Scale(
        "an energy",
        "58 kJ",
        {"mJ": 1e-3, "J": 1, "kJ": 1e3, "MJ": 1e6},
        "0.001 mJ",
        "1e9 MJ",
        {"mWh": 3.6, "Wh": 3600, "kWh": 3.6e6},
    ),
    "mass": _Scale("a mass", "2 kg", {"mg": 1e-3, "g": 1, "kg": 1e3, "t": 1e6}, "0.001 mg", "1e9 t"),
    "carbon intensity": _Scale("a carbon intensity", "300 g/kWh", {"g/kWh": 1}, "1e-6 g/kWh", "1e6 g/kWh"),
    "hazard": _Scale(
        "a number of events per time",
        "0.1 /h",
        {"/d": 1 / 86400, "/h": 1 / 3600, "/min": 1 / 60, "/s": 1},
        "1e-6 /d",
        "1000 /s",
    ),
}

_QUANTITY = re.compile(rf"\s*({NUMBER})\s*(\S(?:.*\S)?)?\s*")


def parse(text: object, dimension: Dimension, *, positive: bool = False) -> float:
    """Return the quantity written in ``text`` in the base unit.

    That is s, B, bit/s, B/s, FLOP/s, W, J, g, g/kWh or 1/s.
    """
    value = _read(text, dimension)
    scale, limits = _SCALES[dimension], range_of(dimension)
    if positive and value == 0:
        raise UnitError(
            f"{quoted(text)} is zero; {scale.phrase} above zero is wanted, for example {scale.example!r}"
        )
    if not limits.holds(value, positive=positive):
        problem = f"more than {scale.most}" if value > limits.most else f"less than {scale.least}"
        raise UnitError(f"{quoted(text)} is {problem}; {scale.phrase} is wanted, {span(dimension, positive)}")
    return value


@cache
def range_of(dimension: Dimension) -> Range:
    """Return the values that a quantity of a dimension may have, in the base unit."""
    scale = _SCALES[dimension]
    return Range(_read(scale.least, dimension), _read(scale.most, dimension))


def base_unit(dimension: Dimension) -> str:
    """Return the unit of plain numbers of a dimension, such as ``s`` or ``bit/s``."""
    return next(unit for unit, factor in _SCALES[dimension].shown.items() if factor == 1)


def shown_units(dimension: Dimension) -> dict[str, float]:
    """Return the units that :func:`format_quantity` writes, ascending, in base units."""
    return dict(_SCALES[dimension].shown)


def span(dimension: Dimension, positive: bool = False) -> str:
    """Return the range of a dimension in words: ``"zero or from 1 ns to 10000 d"``."""
    scale = _SCALES[dimension]
    return f"{'' if positive else 'zero or '}from {scale.least} to {scale.most}"


def _read(text: object, dimension: Dimension) -> float:
    """Return a quantity of zero or more in the base unit, however large."""
    scale = _SCALES[dimension]
    wanted = f"{scale.phrase} is wanted, for example {scale.example!r}"
    if not isinstance(text, str):
        raise UnitError(f"{quoted(text)} has no unit; {wanted}")
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise UnitError(f"{quoted(text)} is not a number with a unit; {wanted}")
    number, unit = float(match[1]), match[2]
    if unit is None:
        raise UnitError(f"{quoted(text)} has no unit; {wanted}")
    if unit not in scale.units:
        raise UnitError(f"{_wrong_unit(text, unit, scale)}; {wanted}")
    # In decimals, so that 7 ns is the float nearest to 7e-9; what float() rounded to 0 or infinity stays so.
    exact = number and math.isfinite(number)
    value = float(Decimal(match[1]) * Decimal(repr(scale.units[unit]))) if exact else number
    if not math.isfinite(value):
        raise UnitError(f"{quoted(text)} is not finite; {wanted}")
    if value < 0:
        raise UnitError(f"{quoted(text)} is negative; {wanted}")
    return value


def _wrong_unit(text: str, unit: str, wanted: _Scale) -> str:
    for scale in _SCALES.values():
        if unit in scale.units:
            return f"{quoted(text)} is {scale.phrase}"
    # A unit that differs by its case alone is the likeliest; then the nearest spelling.
    near = [name for name in wanted.units if name.lower() == unit.lower()]
    near = near or difflib.get_close_matches(unit, wanted.units, n=1)
    guess = f" (did you mean {near[0]!r}?)" if near else ""
    return f"{quoted(text)} has the unknown unit {quoted(unit)}{guess}"


def format_quantity(value: float, dimension: Dimension) -> str:
    """Return ``value``, in the base unit, to 3 significant digits in the unit that suits: ``"20 Mbit/s"``."""
    shown = _SCALES[dimension].shown
    if value == 0 or not math.isfinite(value):
        return f"{value:g} {next(unit for unit, size in shown.items() if size == 1)}"
    rounded = float(f"{value:.3g}")
    for unit in reversed(shown):
        # Rounding again in the unit itself, so that 999.6 ms is "1 s" and 59.99 s is "1 min".
        if abs(float(f"{rounded / shown[unit]:.3g}")) >= 1:
            break
    number = float(f"{value / shown[unit]:.3g}")
    return f"{int(number) if number.is_integer() else number} {unit}"


def spell(value: float, dimension: Dimension) -> str:
    """Return the shortest spelling of ``value``, in the base unit, that :func:`parse` reads back exactly."""
    if value == 0:
        return format_quantity(value, dimension)
    shown = _SCALES[dimension].shown
    numbers = {unit: float(Decimal(repr(value)) / Decimal(repr(size))) for unit, size in shown.items()}
    texts = [f"{number!r}".removesuffix(".0") + f" {unit}" for unit, number in numbers.items()]
    # The base unit is always exact. Of spellings of one length, whole numbers and large units are plainest.
    exact = [text for text in reversed(texts) if _read(text, dimension) == value]
    return min(exact, key=lambda text: (len(text), "." in text))


@dataclass(frozen=True, slots=True)
class Unit:
    """Makes ``Annotated[float, Unit(dimension)]`` a pydantic type: a string with a unit, read as a float."""

    dimension: Dimension
    positive: bool = False

    def read(self, text: object) -> float:
        """Return the quantity, or raise the error that pydantic shows with the field's path."""
        try:
            return parse(text, self.dimension, positive=self.positive)
        except UnitError as error:
            raise PydanticCustomError("unit", "{problem}", {"problem": str(error)}) from None

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self.read,
            serialization=core_schema.plain_serializer_function_ser_schema(
                partial(spell, dimension=self.dimension), when_used="json"
            ),
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        scale = _SCALES[self.dimension]
        units = "|".join(re.escape(unit) for unit in scale.units)
        words = f"{scale.phrase}: a number with a unit, {span(self.dimension, self.positive)}"
        return {
            "type": "string",
            "description": f"{words[0].upper()}{words[1:]}.",
            "$comment": words,  # stays where a key has a description of its own
            "pattern": rf"^\s*\+?{UNSIGNED}\s*({units})\s*$",
            "examples": [scale.example],
        }


MAX_TIME_S = range_of("time").most
"""The longest time, and the latest instant that a file may name: 27 years."""

Seconds = Annotated[float, Unit("time")]
"""A time of zero or more."""

PositiveSeconds = Annotated[float, Unit("time", positive=True)]
"""A time above zero."""

PositiveBytes = Annotated[float, Unit("data size", positive=True)]
"""A number of bytes above zero."""
