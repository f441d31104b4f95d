"""How much is under way, and how fast: values that change as frames leave and arrive."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedsim.params import Array
from fedsim.timeline.run_events import SentFrame


def bytes_in_flight(frames: Sequence[SentFrame], end_ns: int) -> list[tuple[int, int]]:
    """Return the instants at which the bytes under way change, and to what."""
    began, ended = _times(frames, end_ns)
    return _sums(began, ended, np.array([frame.num_bytes for frame in frames], np.int64))


def mean_rates(frames: Sequence[SentFrame], end_ns: int) -> list[tuple[int, int]]:
    """Return the same of bytes per second, where each frame counts with its mean rate while it is under way.

    A trace has no rates, so within the time of a frame its rate may have changed. What takes no time has no
    rate, and a frame that was lost or is under way at the end has not sent all of its bytes: neither counts.
    """
    whole = [frame for frame in frames if frame.outcome in ("delivered", "undecodable")]
    moving = [frame for frame in whole if frame.ended_ns is not None and frame.ended_ns > frame.sent_ns]
    began, ended = _times(moving, end_ns)
    sizes = np.array([frame.num_bytes for frame in moving], np.int64)
    return _sums(began, ended, np.rint(sizes * 1e9 / (ended - began)).astype(np.int64))


def _times(frames: Sequence[SentFrame], end_ns: int) -> tuple[Array, Array]:
    ended = [end_ns if frame.ended_ns is None else frame.ended_ns for frame in frames]
    return np.array([frame.sent_ns for frame in frames], np.int64), np.array(ended, np.int64)


def _sums(began: Array, ended: Array, amounts: Array) -> list[tuple[int, int]]:
    """Return the sum of what lasts, at each instant at which it changes."""
    at_ns, of = np.unique(np.concatenate([began, ended]), return_inverse=True)
    changes = np.zeros(len(at_ns), np.int64)
    np.add.at(changes, of, np.concatenate([amounts, -amounts]))
    sums = np.cumsum(changes)
    is_new = np.diff(sums, prepend=0) != 0
    return list(zip(at_ns[is_new].tolist(), sums[is_new].tolist(), strict=True))
