"""Selectors that draw clients whatever these have done so far."""

from __future__ import annotations

from fedsim.config import Config
from fedsim.params import Array
from fedsim.rng import Key
from fedsim.runtime.policies.selectors.base import Candidates, Selector


class Uniform(Selector[Config]):
    """Uniform selection without replacement."""

    def select(self, candidates: Candidates, count: int, key: Key) -> Array:
        """Draw without replacement."""
        return candidates.sample(count, key)


class BySize(Selector[Config]):
    """Selection in proportion to data size, without replacement (as in section 3 of Fed-ET)."""

    def select(self, candidates: Candidates, count: int, key: Key) -> Array:
        """Draw one after the other, each in proportion to size among those that are left."""
        return candidates.sample_by_size(count, key)


PLUGINS = {"uniform": Uniform, "by_size": BySize}
