"""Uniform selection without replacement (specification 3.4)."""

from __future__ import annotations

from fedsim.config import Config
from fedsim.params import Array
from fedsim.rng import Key
from fedsim.runtime.selectors.base import Selector


class Uniform(Selector[Config]):
    """Every candidate is as likely as every other."""

    def select(self, candidates: Array, sizes: Array, count: int, key: Key) -> Array:
        """Draw without replacement."""
        wanted = min(count, len(candidates))
        return key.numpy().choice(candidates, size=wanted, replace=False, shuffle=False)


PLUGIN = Uniform
