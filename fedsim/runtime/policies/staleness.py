"""Staleness: how much a reply counts when others were merged since its dispatch.

The *staleness* of a reply is the number of merges of rounds' exchanges between its dispatch and its own
merge. What the discount acts on is the algorithm's (``Algorithm.discounted``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated

from pydantic import Field

from fedsim.config import Config
from fedsim.plugin_choice import Kind, NamedChoice
from fedsim.plugins import C, Plugin


class Staleness(Plugin[C], ABC):
    """A function of staleness."""

    @abstractmethod
    def discount(self, staleness: float) -> float:
        """Return how much a reply counts, above 0 and at most 1; 1 at a staleness of 0.

        Args:
            staleness: At least 0; it may be a fraction, as a mean staleness is.
        """


STALENESS = Kind("staleness", "fedsim.runtime.policies.staleness", Staleness)  # type: ignore[type-abstract]


class StalenessChoice(NamedChoice):
    """How much a stale reply counts."""

    KIND = STALENESS
    name: str = "constant"


class Constant(Staleness[Config]):
    """Every reply counts in full, however stale it is."""

    def discount(self, staleness: float) -> float:
        """Return 1."""
        return 1.0


class HingeConfig(Config):
    """Where it bends, and how fast it falls from there."""

    a: Annotated[float, Field(ge=0, le=1000)] = 10.0
    """How fast it falls beyond b."""
    b: Annotated[float, Field(ge=0, le=1e6)] = 4.0
    """The largest staleness at which a reply counts in full."""


class Hinge(Staleness[HingeConfig]):
    """A reply counts in full up to a staleness of b, and ``1 / (a (t - b) + 1)`` beyond, as in FedAsync.

    Xie, Koyejo, Gupta: Asynchronous Federated Optimization, OPT 2020 (arXiv 1903.03934), section 5.2, whose
    values are the defaults. The ``+ 1`` makes it continuous at b.
    """

    def discount(self, staleness: float) -> float:
        """Return 1, or less beyond the bend."""
        a, b = self.config.a, self.config.b
        return 1.0 if staleness <= b else 1 / (a * (staleness - b) + 1)


class PolynomialConfig(Config):
    """How fast it falls."""

    a: Annotated[float, Field(ge=0, le=10)] = 0.5
    """The exponent."""


class Polynomial(Staleness[PolynomialConfig]):
    """A stale reply counts ``(1 + t) ** -a``, as in FedAsync and FedBuff.

    Xie, Koyejo, Gupta: Asynchronous Federated Optimization, OPT 2020 (arXiv 1903.03934), section 5.2. With a
    = 0.5 it is ``1 / sqrt(1 + t)``, which FedBuff uses: Nguyen, Malik, Zhan, Yousefpour, Rabbat, Malek, Huba:
    Federated Learning with Buffered Asynchronous Aggregation, AISTATS 2022 (arXiv 2106.06639), section 5.
    """

    def discount(self, staleness: float) -> float:
        """Return the power."""
        power: float = (1 + staleness) ** -self.config.a
        return power


PLUGINS = {"constant": Constant, "hinge": Hinge, "polynomial": Polynomial}
