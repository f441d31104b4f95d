"""What pacings share whose dispatches overlap merges: how many clients are at work, and discounts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Annotated, Any, TypeVar

from pydantic import Field

from fedsim.config import Config
from fedsim.errors import Fault
from fedsim.plugin_choice import OrName
from fedsim.ranges import Clients
from fedsim.runtime.policies.pacing.base import Pacing
from fedsim.runtime.policies.staleness import Staleness, StalenessChoice


class OverlappingConfig(Config):
    """How many clients are at work, and what stale replies count."""

    concurrency: Clients
    """Dispatches that are open at once."""
    staleness: OrName[StalenessChoice] = Field("constant", validate_default=True)
    """How much a stale reply counts: a name, or a table of name and params."""
    full_at: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    """The staleness at which a reply counts 1; fresher ones count more. A mean staleness here keeps the steps
    as long as without a discount, on average (as in FLSim)."""


P = TypeVar("P", bound=OverlappingConfig)


class Overlapping(Pacing[P]):
    """A pacing whose dispatches go on while others are merged."""

    @property
    def carries(self) -> bool:
        """Whether a merge may take replies to dispatches of earlier rounds: it always may."""
        return True

    @cached_property
    def _staleness(self) -> Staleness[Any]:
        staleness: Staleness[Any] = self.config.staleness.make()
        return staleness

    def discount(self, staleness: int) -> float:
        """Return how much a reply counts, relative to one of the staleness that counts in full."""
        return self._staleness.discount(staleness) / self._staleness.discount(self.config.full_at)

    def misfits(self, cohort_size: int, num_eligible: int) -> Iterator[Fault]:
        """Yield a concurrency that cannot be, given the clients and the size of a merge; an idle full_at."""
        concurrency, path = self.config.concurrency, "participation.pacing.params.concurrency"
        if concurrency > num_eligible:
            yield Fault(
                path,
                f"{concurrency} clients at work at once, and {num_eligible} can take part",
                f"write {num_eligible} or fewer",
            )
        if (size := self.merge_size(cohort_size) or 0) > concurrency:
            yield Fault(
                path,
                f"{concurrency} clients at work at once, and a merge waits for {size} replies",
                f"write {size} or more, or let a merge wait for fewer",
            )
        full_at = self.config.full_at
        if full_at and self._staleness.discount(full_at) == 1:
            yield Fault(
                "participation.pacing.params.full_at",
                f"a reply of staleness {full_at:g} counts in full anyway",
                "leave it out, or choose a staleness that discounts such replies",
            )
