"""Load of a device: a factor on the time of each job, drawn anew for each job.

In a scenario it is a table that names a distribution, for a device class or a group::

    load = { distribution = "exponential" }
    load = { distribution = "lognormal", sigma = 0.5 }
    load = { distribution = "half_normal", mean = 1.2 }

The mean is 1 unless given, so on average a job takes as long as the device's speed says. (The median of
``variation``, which multiplies it, is 1.) A draw is a function of its key alone.
"""

from __future__ import annotations

from abc import abstractmethod
from math import exp, log, pi, sqrt
from typing import Annotated, Literal

from pydantic import Field, PlainSerializer, PlainValidator

from fedsim.config import Config, fault
from fedsim.fleet.distributions import law_of
from fedsim.quoting import quoted
from fedsim.rng import Key
from fedsim.units import Range

MEANS = Range(0.001, 1000)
"""Means that a load may have."""
SIGMAS = Range(0, 3)
"""Sigmas of a log-normal load."""


class Load(Config):
    """Base of the distributions."""

    distribution: str
    """Which distribution this is."""
    mean: float = Field(1.0, ge=MEANS.least, le=MEANS.most)
    """Mean of the factor, 0.001 to 1000."""

    @abstractmethod
    def factor(self, key: Key) -> float:
        """Return the factor for the job that the key names."""


class LogNormalLoad(Load):
    """``mean * exp(sigma * N(0, 1) - sigma**2 / 2)``: half of the jobs are faster than on average."""

    distribution: Literal["lognormal"] = "lognormal"
    """Which distribution this is: a log-normal one."""
    sigma: float = Field(ge=SIGMAS.least, le=SIGMAS.most)
    """Standard deviation of the logarithm, 0 to 3."""

    def factor(self, key: Key) -> float:
        """Return one draw."""
        return self.mean * exp(self.sigma * key.normal() - self.sigma**2 / 2)


class ExponentialLoad(Load):
    """``mean * Exp(1)``: two thirds of the jobs take less than the mean, a few several times as long."""

    distribution: Literal["exponential"] = "exponential"
    """Which distribution this is: an exponential one."""

    def factor(self, key: Key) -> float:
        """Return one draw."""
        return -self.mean * log(key.uniform())


class HalfNormalLoad(Load):
    """``mean * sqrt(pi / 2) * |N(0, 1)|``, the law under which FedBuff is studied (arXiv 2106.06639)."""

    distribution: Literal["half_normal"] = "half_normal"
    """Which distribution this is: a half-normal one."""

    def factor(self, key: Key) -> float:
        """Return one draw."""
        return self.mean * sqrt(pi / 2) * abs(key.normal())


LOADS: dict[str, type[Load]] = {
    "lognormal": LogNormalLoad,
    "exponential": ExponentialLoad,
    "half_normal": HalfNormalLoad,
}
"""By the names of their distributions."""


def _read(value: object) -> Load:
    if isinstance(value, Load):
        return value
    if not isinstance(value, dict):
        raise fault(f"{quoted(value)} is no table", 'write { distribution = "exponential" }, say')
    load: Load = law_of(value, LOADS)
    return load


AnyLoad = Annotated[
    Load,
    PlainValidator(_read, json_schema_input_type=LogNormalLoad | ExponentialLoad | HalfNormalLoad),
    PlainSerializer(lambda load: load.model_dump(mode="json"), when_used="json"),
]
"""The pydantic type of a table that names one of them."""
