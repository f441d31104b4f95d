"""Who is asked: the contract of a selector."""

from __future__ import annotations

from abc import ABC, abstractmethod

from fedsim.params import Array
from fedsim.plugins import C, Plugin
from fedsim.rng import Key


class Selector(Plugin[C], ABC):
    """Chooses a cohort."""

    @abstractmethod
    def select(self, candidates: Array, sizes: Array, count: int, key: Key) -> Array:
        """Return ``min(count, len(candidates))`` of the candidates, each at most once.

        Args:
            candidates: Clients that may be asked now, int64, ascending.
            sizes: Training samples of each candidate, int64.
            count: How many are wanted.
            key: Names this selection's generators.
        """
