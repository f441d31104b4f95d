"""Quantities that are one value or a distribution over the devices of a group.

In a scenario a quantity is a string with a unit, the same for every device, or a table that names a
distribution and its parameters, from which each device draws once::

    speed = "2 GFLOP/s"
    speed = { distribution = "lognormal", median = "2 GFLOP/s", sigma = 0.3 }
    up = { distribution = "uniform", low = "5 Mbit/s", high = "20 Mbit/s" }
    latency = { distribution = "normal", mean = "50 ms", deviation = "20 ms", minimum = "5 ms" }
    memory = { distribution = "choice", values = ["4 GB", "8 GB"], weights = [3, 1] }

Each kind of quantity has a range (:attr:`Spread.limits`), in which all that is written lies. What a law draws
beyond it becomes its end: a log-normal efficiency is never above 1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Generic, Literal, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, GetCoreSchemaHandler, TypeAdapter, ValidationError, create_model, model_validator
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

from fedsim.config import AsTuple, Config, fault
from fedsim.quoting import nearest, quoted
from fedsim.ranges import Weight
from fedsim.rng import Key
from fedsim.units import ANY, Dimension, Range, Unit, range_of

Values = NDArray[np.float64]
T = TypeVar("T", bound=float)


class Distribution(ABC):
    """A law from which each device of a group draws its value, in base units."""

    @abstractmethod
    def draw(self, num: int, generator: np.random.Generator) -> Values:
        """Return ``num`` values, ``[num]``."""


@dataclass(frozen=True, slots=True)
class Fixed(Distribution):
    """The same value for every device."""

    value: float

    def draw(self, num: int, generator: np.random.Generator) -> Values:
        """Return the value ``num`` times; nothing is drawn."""
        return np.full(num, self.value)


class _Table(Config, Distribution, Generic[T]):
    """Base of the distributions that a table describes; ``T`` is the type of a quantity in it."""


class LogNormal(_Table[T], Generic[T]):
    """``median * exp(sigma * N(0, 1))``: always above zero, half of the devices below the median."""

    distribution: Literal["lognormal"] = "lognormal"
    """Which distribution this is: a log-normal one."""
    median: T
    """Half of the devices are below it; the mean is ``exp(sigma**2 / 2)`` times as large."""
    sigma: float = Field(ge=0, le=3)
    """Standard deviation of the logarithm, 0 to 3; at 0.3 two thirds are within a factor of 1.35."""

    def draw(self, num: int, generator: np.random.Generator) -> Values:
        """Return ``num`` independent values."""
        return self.median * np.exp(self.sigma * generator.standard_normal(num))


class Uniform(_Table[T], Generic[T]):
    """Every value from ``low`` to ``high`` is equally likely."""

    distribution: Literal["uniform"] = "uniform"
    """Which distribution this is: a uniform one."""
    low: T
    """The smallest value."""
    high: T
    """The largest value."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low > self.high:
            raise PydanticCustomError("order", "low is above high: exchange them")
        return self

    def draw(self, num: int, generator: np.random.Generator) -> Values:
        """Return ``num`` independent values."""
        return generator.uniform(self.low, self.high, num)


class Normal(_Table[T], Generic[T]):
    """A normal distribution, in which values below ``minimum`` become the minimum."""

    distribution: Literal["normal"] = "normal"
    """Which distribution this is: a normal one."""
    mean: T
    """Mean before the minimum applies."""
    deviation: T
    """Standard deviation before the minimum applies."""
    minimum: T
    """The smallest value; without it, some device would fall below zero."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.minimum > self.mean:
            raise PydanticCustomError("order", "minimum is above mean: most devices would have the minimum")
        return self

    def draw(self, num: int, generator: np.random.Generator) -> Values:
        """Return ``num`` independent values."""
        return np.maximum(generator.normal(self.mean, self.deviation, num), self.minimum)


class Choice(_Table[T], Generic[T]):
    """One of several values, each with a probability in proportion to its weight."""

    distribution: Literal["choice"] = "choice"
    """Which distribution this is: one of several values."""
    values: Annotated[tuple[T, ...], AsTuple, Field(min_length=1)]
    """The values."""
    weights: Annotated[tuple[Weight, ...], AsTuple] | None = None
    """One weight for each value; equal ones if left out."""

    @model_validator(mode="after")
    def _matched(self) -> Self:
        if self.weights is not None and len(self.weights) != len(self.values):
            sizes = {"values": len(self.values), "weights": len(self.weights)}
            raise PydanticCustomError(
                "weights", "{values} values and {weights} weights: give one weight for each value", sizes
            )
        if self.weights is not None and sum(self.weights) == 0:
            raise PydanticCustomError("weights", "weights are all zero: give at least one above zero")
        return self

    def draw(self, num: int, generator: np.random.Generator) -> Values:
        """Return ``num`` independent values."""
        weights = np.array(self.weights or [1] * len(self.values), np.float64)
        return generator.choice(np.array(self.values, np.float64), num, p=weights / weights.sum())


_KINDS: dict[str, Any] = {"lognormal": LogNormal, "uniform": Uniform, "normal": Normal, "choice": Choice}


def lognormal(median: str, sigma: float) -> dict[str, Any]:
    """Return a log-normal table, written as in a scenario."""
    return {"distribution": "lognormal", "median": median, "sigma": sigma}


def choice(weights: Mapping[str, float]) -> dict[str, Any]:
    """Return a table of values and their weights, written as in a scenario."""
    return {"distribution": "choice", "values": list(weights), "weights": list(weights.values())}


@dataclass(frozen=True, slots=True)
class Spread:
    """Makes ``Annotated[Distribution, Spread(...)]`` a pydantic type: one value, or a table."""

    dimension: Dimension | None
    positive: bool = False
    plain: Range = ANY

    @property
    def limits(self) -> Range:
        """The values that it may have, in the base unit."""
        return self.plain if self.dimension is None else range_of(self.dimension)

    def holds(self, values: float | Values) -> bool:
        """Return whether a value, or each of an array, is one of these, or zero where that may be."""
        fits = (self.limits.least <= values) & (values <= self.limits.most)
        return bool(np.all(fits if self.positive else fits | (values == 0)))

    def draw(self, law: Distribution, num: int, key: Key) -> float | Values:
        """Return the values of ``num`` devices in base units: one for all, or an array ``[num]``.

        What is drawn beyond the limits becomes their end; zero stays where it may be.
        """
        if isinstance(law, Fixed):
            return law.value
        drawn = law.draw(num, key.numpy())
        clipped = np.clip(drawn, self.limits.least, self.limits.most)
        return clipped if self.positive else np.where(drawn == 0, 0.0, clipped)

    @property
    def scalar(self) -> Any:
        """The pydantic type of one value."""
        if self.dimension is None:
            return Annotated[float, Field(ge=self.plain.least, le=self.plain.most, strict=True)]
        return Annotated[float, Unit(self.dimension, self.positive)]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        number = TypeAdapter[float](self.scalar)
        tables = _tables(self)
        spelling: Any = self.scalar
        for table in tables.values():
            spelling |= table

        def read(value: object) -> Distribution:
            if isinstance(value, (Fixed, _Table)):
                return value
            return law_of(value, tables) if isinstance(value, dict) else Fixed(number.validate_python(value))

        def write(value: Fixed | _Table[Any]) -> Any:
            if isinstance(value, Fixed):
                return number.dump_python(value.value, mode="json")
            return value.model_dump(mode="json", exclude_none=True)

        return core_schema.no_info_plain_validator_function(
            read,
            json_schema_input_schema=handler.generate_schema(spelling),
            serialization=core_schema.plain_serializer_function_ser_schema(write, when_used="json"),
        )


@cache
def _tables(spread: Spread) -> dict[str, Any]:
    """Return the tables whose parameters are of this kind, each with a name that suits the JSON schema."""
    suffix = f"{spread.dimension or 'number'}{' above zero' if spread.positive else ''}".replace(" ", "_")
    return {
        kind: create_model(
            f"{table.__name__}_{suffix}",
            __base__=table[spread.scalar],
            __module__=__name__,
            __doc__=table.__doc__,
        )
        for kind, table in _KINDS.items()
    }


def law_of(value: dict[str, Any], tables: Mapping[str, Any]) -> Any:
    """Return the law that a table names by ``distribution``, read by the class of that name."""
    kind = value.get("distribution")
    if isinstance(kind, str) and kind in tables:
        # A fault inside keeps its path: pydantic puts this field's name before it.
        return tables[kind].model_validate(value)
    problem = "no 'distribution' is named" if kind is None else f"no distribution is called {quoted(kind)}"
    problem += f"; {nearest(kind, list(tables))}"
    error = fault(problem)
    line: InitErrorDetails = {"type": error, "loc": ("distribution",), "input": value}
    raise ValidationError.from_exception_data("quantity", [line])
