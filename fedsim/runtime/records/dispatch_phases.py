"""The phases of a dispatch: at each instant, from its start to its end, it is in one of them.

It is computing, uploading, downloading, or waiting, which is all the rest: queueing behind other work of a
busy client, or a lease that runs out after a frame was lost. What overlaps counts once, in the order of this
list. While its client is away, what would be computing, uploading or downloading stands still, and that is a
phase of its own, *away*. Work that begins anew on the return counts twice, as it is done twice. Phases sum to
the turnaround to the nanosecond.

A :class:`PhaseLog` keeps what begins and ends in dispatches. Phases are computed from it for many at once.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from fedsim.params import Array

WAITING, DOWNLOAD, UPLOAD, COMPUTE, AWAY = range(5)

Phase = Literal["download", "compute", "upload", "away", "waiting"]
PHASES: tuple[Phase, ...] = ("download", "compute", "upload", "away", "waiting")
WORK: tuple[Phase, ...] = ("download", "compute", "upload")
"""The phases in which somebody is at work; being away and waiting cost nothing."""

PLACES: dict[Phase, int] = {
    "waiting": WAITING,
    "download": DOWNLOAD,
    "upload": UPLOAD,
    "compute": COMPUTE,
    "away": AWAY,
}
"""Where the time of each phase is counted."""

PASSED = 0
"""An event by which nothing begins or ends: the time until then counts."""

_SHIFT, _ZERO = 16, 8  # row and event of an entry are one number


class Report(NamedTuple):
    """What a process reports of its work for a dispatch, ns; the rest until the report was waiting."""

    at_ns: int
    download_ns: int
    compute_ns: int
    upload_ns: int


class PhaseLog:
    """What begins and ends in dispatches."""

    def __init__(self) -> None:
        self._entries, self._at_ns = array("q"), array("q")
        self._reports: dict[int, Report] = {}  # by row

    def __len__(self) -> int:
        return len(self._at_ns)

    def add(self, row: int, at_ns: int, event: int) -> None:
        """Add a phase that begins, or, negative, one that ends; or PASSED, as when the dispatch is sent.

        AWAY begins when the client leaves.
        """
        self._entries.append(row * _SHIFT + event + _ZERO)
        self._at_ns.append(at_ns)

    def extend(self, rows: Sequence[int], at_ns: Sequence[int], events: Sequence[int]) -> None:
        """Add events of several dispatches."""
        self._entries.extend([row * _SHIFT + event + _ZERO for row, event in zip(rows, events, strict=True)])
        self._at_ns.extend(at_ns)

    def report(self, row: int, report: Report) -> None:
        """Put a report in the place of what events have shown until now."""
        self.add(row, report.at_ns, PASSED)
        self._reports[row] = report

    def copy(self) -> PhaseLog:
        """Return a copy; another thread may be about to add an entry."""
        copied = PhaseLog()
        copied._at_ns = self._at_ns[:]
        copied._entries = self._entries[: len(copied._at_ns)]
        copied._reports = self._reports.copy()
        return copied

    def spans(self, still_open: Sequence[int]) -> Array:
        """Return the spans of all dispatches but those that are open, and forget their events.

        A span is a time in which a dispatch is in one phase. Those of a dispatch follow each other without a
        gap, and no two in a row are of one phase.

        Returns:
            int64 ``[spans, 5]``, in the order of rows and of time: row of the dispatch, phase (one of
            :data:`PLACES`), begin and end in ns, and 1 where these are exact, 0 where only the length is
            known.
        """
        entries, at_ns = np.array(self._entries), np.array(self._at_ns)
        row, event = entries // _SHIFT, entries % _SHIFT - _ZERO
        is_open = np.isin(row, np.array(still_open, np.int64))
        self._entries = array("q", entries[is_open].tobytes())
        self._at_ns = array("q", at_ns[is_open].tobytes())
        order = np.lexsort((at_ns, row))
        order = order[~is_open[order]]
        spans = _spans(row[order], at_ns[order], event[order])
        over = sorted(self._reports.keys() - set(still_open))
        return _with_reports(spans, {row: self._reports.pop(row) for row in over}) if over else spans


def _spans(row: Array, at_ns: Array, event: Array) -> Array:
    """Return the spans of dispatches from their events, which are sorted by row."""
    first = np.flatnonzero(np.diff(row, prepend=-1))
    length = np.diff(first, append=len(row))

    def is_under_way(phase: int) -> Array:
        """Return after which events something of a phase is under way."""
        running = np.cumsum((event == phase).astype(np.int64) - (event == -phase))
        running -= np.repeat(running[first], length)  # by its first event nothing begins
        return running > 0

    phase = np.zeros(len(row), np.int64)
    for busy in (DOWNLOAD, UPLOAD, COMPUTE):
        phase[is_under_way(busy)] = busy
    phase[is_under_way(AWAY) & (phase != WAITING)] = AWAY
    # A dispatch ends with its last event, unless its client leaves or returns while nothing is under way.
    before = np.concatenate([[WAITING], phase[:-1]])
    place = np.arange(len(row))
    counts = (np.abs(event) != AWAY) | (before != WAITING)
    last = np.maximum.reduceat(np.where(counts, place, 0), first) if len(row) else first
    began = np.flatnonzero(place < np.repeat(last, length))
    return _joined(np.stack([row[began], phase[began], at_ns[began], at_ns[began + 1]]), is_exact=True)


def _joined(spans: Array, *, is_exact: bool) -> Array:
    """Return spans without those that take no time; neighbours of one phase are joined.

    Args:
        spans: Row, phase, begin and end, ``[4, spans]``.
        is_exact: Whether that is when.
    """
    row, phase, began_ns, ended_ns = spans[:, spans[3] > spans[2]]
    is_new = (np.diff(row, prepend=-1) != 0) | (np.diff(phase, prepend=-1) != 0)
    first, last = np.flatnonzero(is_new), np.flatnonzero(np.append(is_new, True)[1:])
    exact = np.full(len(first), is_exact, np.int64)
    return np.stack([row[first], phase[first], began_ns[first], ended_ns[last], exact], axis=1)


def _with_reports(spans: Array, reports: Mapping[int, Report]) -> Array:
    """Return spans with those of some dispatches, by row, as they were reported."""
    rows = np.array(list(reports))
    bounds = np.searchsorted(spans[:, 0], [rows, rows + 1]).T.tolist()
    parts = [spans[~np.isin(spans[:, 0], rows)]]
    parts += [
        _reported(spans[slice(*its)], report) for its, report in zip(bounds, reports.values(), strict=True)
    ]
    together = np.concatenate(parts)
    return together[np.argsort(together[:, 0], kind="stable")]


def _reported(seen: Array, report: Report) -> Array:
    """Return the spans of a dispatch as it was reported.

    It is known when the download began, and the upload ends with the report. When the client has computed
    is not known: it is taken to be right before the upload.
    """
    if not len(seen):
        return seen
    (row, first_phase, asked_ns, first_ended_ns, _), *_ = seen.tolist()
    upload_ns = min(report.upload_ns, left_ns := report.at_ns - asked_ns)
    download_ns = min(report.download_ns, left_ns := left_ns - upload_ns)
    compute_ns = min(report.compute_ns, left_ns := left_ns - download_ns)
    waiting_ns = left_ns - compute_ns
    before_ns = min(first_ended_ns - asked_ns, waiting_ns) if first_phase == WAITING else 0
    parts = (WAITING, DOWNLOAD, WAITING, COMPUTE, UPLOAD)
    passed_ns = before_ns, download_ns, waiting_ns - before_ns, compute_ns, upload_ns
    edges_ns = asked_ns + np.cumsum([0, *passed_ns])
    until = np.stack([np.full(5, row), np.array(parts), edges_ns[:-1], edges_ns[1:]])
    spans = np.concatenate([until, seen[:, :4].T], axis=1)
    spans[2, 5:] = np.maximum(spans[2, 5:], report.at_ns)  # of what was seen, only what came later stays
    return _joined(spans, is_exact=False)
