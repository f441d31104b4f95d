"""The frames of a cohort's dispatches."""

from __future__ import annotations

import numpy as np

from fedsim.bus.memory import OnLink
from fedsim.clock.record_columns import Column, column
from fedsim.params import Array

NO_FRAME = -1
"""In place of the number of a kind of frame."""


class Frames:
    """The frames of dispatches in one direction.

    Attributes:
        number: Of each dispatch, the number of its kind of frame, int64 ``[n]``; -1 where there is none.
    """

    def __init__(self, num_dispatches: int) -> None:
        self.number = np.full(num_dispatches, NO_FRAME)
        self._numbers: dict[OnLink, int] = {}

    def number_of(self, frame: OnLink | None) -> int:
        """Return the number of a kind of frame."""
        return NO_FRAME if frame is None else self._numbers.setdefault(frame, len(self._numbers))

    def link_bytes(self, places: Array) -> Array:
        """Return the lengths on the link of the frames of some dispatches, int64."""
        lengths = np.array([frame.link_bytes for frame in self._numbers], np.int64)
        return lengths.take(self.number[places])

    def plain_bytes(self, places: Array) -> Array | None:
        """Return the lengths of frames without codecs, -1 where one is not coded; None if none is coded."""
        lengths = [-1 if frame.plain_bytes is None else frame.plain_bytes for frame in self._numbers]
        if max(lengths) < 0:
            return None
        return np.array(lengths, np.int64).take(self.number[places])

    def what(self, places: Array) -> list[Column]:
        """Return what ledger and trace have of these frames, in columns."""
        kinds, numbers = [frame.what for frame in self._numbers], self.number[places]
        if len(kinds) == 1:
            return list(kinds[0])
        columns = [column(values) for values in zip(*kinds, strict=True)]
        return [value[numbers] if isinstance(value, np.ndarray) else value for value in columns]
