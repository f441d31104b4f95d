"""Selection in proportion to data size, without replacement (specification 3.4; Fed-ET asks so)."""

from __future__ import annotations

from fedsim.config import Config
from fedsim.params import Array
from fedsim.rng import Key
from fedsim.runtime.selectors.base import Selector


class BySize(Selector[Config]):
    """A candidate with twice as many training samples is twice as likely to be drawn next."""

    def select(self, candidates: Array, sizes: Array, count: int, key: Key) -> Array:
        """Draw one after the other, each in proportion to size among those that are left."""
        wanted = min(count, len(candidates))
        if not wanted:
            return candidates[:0]
        return key.numpy().choice(
            candidates, size=wanted, replace=False, p=sizes / sizes.sum(), shuffle=False
        )


PLUGIN = BySize
