"""Uniform selection without replacement."""

from __future__ import annotations

from fedsim.config import Config
from fedsim.params import Array
from fedsim.rng import Key
from fedsim.runtime.policies.selectors.base import Candidates, Selector


class Uniform(Selector[Config]):
    """Every candidate is as likely as every other."""

    def select(self, candidates: Candidates, count: int, key: Key) -> Array:
        """Draw without replacement."""
        return candidates.sample(count, key)


PLUGIN = Uniform
