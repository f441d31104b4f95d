"""The start values of a run's architectures."""

from __future__ import annotations

from collections.abc import Mapping

from fedsim.models import Architecture
from fedsim.params import Model
from fedsim.rng import Key

MAX_KEPT_BYTES = 2**28
"""So much of the variants is kept in memory; beyond it they are made anew whenever they are asked for."""


class StartValues:
    """Makes start models when they are first asked for.

    Variant 0 of each architecture is kept, one object for all who ask. Clients can have a variant each, and
    there may be a million of them: of the others the first are kept, as many as fit.

    Args:
        architectures: By label.
        key: Names the generators.
    """

    def __init__(self, architectures: Mapping[str, Architecture], key: Key) -> None:
        self._architectures = architectures
        self._key = key
        self._kept: dict[tuple[str, int], Model] = {}
        self._left_bytes = MAX_KEPT_BYTES

    @property
    def names(self) -> Mapping[int, tuple[str, int]]:
        """What each model that is kept is called, by its identity: label and variant."""
        return {id(model): name for name, model in self._kept.items()}

    def __call__(self, label: str, variant: int = 0) -> Model:
        """Return one of an architecture's start models; ``KeyError`` if the label is unknown."""
        if (kept := self._kept.get((label, variant))) is not None:
            return kept
        key = self._key.child(label, variant) if variant else self._key.child(label)
        model = self._architectures[label].initial(key)
        arrays = (*model.params.values(), *model.buffers.values())
        needs_bytes = sum(array.nbytes for array in arrays) if variant else 0
        if needs_bytes <= self._left_bytes:
            self._left_bytes -= needs_bytes
            self._kept[label, variant] = model
        return model
