"""Random draws that no version of NumPy changes: each comes from a key of its own (:mod:`fedsim.rng`)."""

from __future__ import annotations

from typing import Any, TypeVar

from fedsim.rng import Key

T = TypeVar("T")
Table = dict[str, Any]


class Dice:
    """Draws in order, each from a key of its own."""

    def __init__(self, key: Key) -> None:
        self._key = key
        self._drawn = 0

    def child(self, *names: str | int) -> Dice:
        """Return independent dice for a part."""
        return Dice(self._key.child(*names))

    def below(self, limit: float) -> float:
        """Return a number in [0, limit)."""
        self._drawn += 1
        return limit * (1 - self._key.child(self._drawn).uniform())

    def chance(self, probability: float) -> bool:
        """Return True with a probability."""
        return self.below(1) < probability

    def whole(self, least: int, most: int) -> int:
        """Return a whole number, both ends included."""
        return least + int(self.below(most - least + 1))

    def pick(self, *options: T) -> T:
        """Return one of several, all equally likely."""
        return options[self.whole(0, len(options) - 1)]

    def some(self, probability: float, **settings: Any) -> Table:
        """Return each of the settings with a probability."""
        return {name: value for name, value in settings.items() if self.chance(probability)}
