"""The frames of a cohort's dispatches, and when they arrive."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedsim.bus.memory import OnLink
from fedsim.clock.record_columns import Column, column
from fedsim.network.base import Arrivals
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

    def link_bytes(self, places: Array) -> list[int]:
        """Return the lengths on the link of the frames of some dispatches."""
        link_bytes = [frame.link_bytes for frame in self._numbers]
        return [link_bytes[number] for number in self.number[places].tolist()]

    def what(self, places: Array) -> list[Column]:
        """Return what ledger and trace have of these frames, in columns."""
        kinds, numbers = [frame.what for frame in self._numbers], self.number[places]
        if len(kinds) == 1:
            return list(kinds[0])
        columns = [column(values) for values in zip(*kinds, strict=True)]
        return [value[numbers] if isinstance(value, np.ndarray) else value for value in columns]


class Arrived(NamedTuple):
    """Arrivals in order: instant in ns, place of the dispatch, and number among those of that instant."""

    at_ns: Array
    place: Array
    number: Array

    @classmethod
    def of(cls, arrivals: Arrivals, places: Array) -> Arrived:
        """Return arrivals of frames, which belong to the dispatches at these places."""
        at_ns = np.array([at_ns for at_ns, frames in arrivals for _ in frames], np.int64)
        number = np.array([number for _, frames in arrivals for number in range(len(frames))], np.int64)
        frames = np.array([frame for _, frames in arrivals for frame in frames], np.int64)
        return cls(at_ns, places[frames], number)
