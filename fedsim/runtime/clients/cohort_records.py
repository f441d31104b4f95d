"""The order of what happens in a cohort that is alone: as on the loop.

An *event* is the arrival of dispatches at one instant, the beginning of a hook that is sent no frame, or the
end of a job. By an event hooks go on: each asks for jobs, whose ends are events again, or replies. Events are
ordered by instant, then by class, then by which of them was scheduled first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from fedsim.clock import EventClass, RecordKind, Trace
from fedsim.clock.event_trace import Row
from fedsim.params import Array

SENT, BEGUN = -2, -1
"""Classes, beside those of the loop's events, of what is sent and of hooks that begin without a frame."""

NO_EVENT = -1


Cause: TypeAlias = tuple[int, int]
"""Why a hook goes on: an event, and its place among what happens by the event."""


class CohortEvents:
    """The events of a cohort."""

    def __init__(self) -> None:
        self.at_ns: list[int] = []
        self.event_class: list[int] = []
        self._causes: list[tuple[int, int, int]] = []  # and the number of the job

    def begin(self, at_ns: int, event_class: int) -> int:
        """Add an event that is scheduled when dispatches are sent; return its number."""
        number = len(self.at_ns)
        self.at_ns.append(at_ns)
        self.event_class.append(event_class)
        self._causes.append((number, 0, 0))
        return number

    def end_jobs(self, ends_ns: Sequence[int], cause: Cause) -> Cause:
        """Add the ends of jobs that a hook asks for; return why it goes on when the last has ended."""
        self.at_ns += ends_ns
        self.event_class += [EventClass.JOIN] * len(ends_ns)
        self._causes += [(*cause, job) for job in range(len(ends_ns))]
        return len(self.at_ns) - 1, 1

    def ranks(self) -> Array:
        """Return the place of each event in the order of all, int64 ``[events]``."""
        event, place, job = np.array(self._causes, np.int64).reshape(-1, 3).T
        at_ns, event_class = np.array(self.at_ns, np.int64), np.array(self.event_class, np.int64)
        rank = np.arange(len(event))
        while True:
            # At one instant the order is that of the causes, which come before.
            order = np.lexsort((job, place, rank[event], event_class, at_ns))
            before, rank = rank, np.empty_like(rank)
            rank[order] = np.arange(len(order))
            if (rank == before).all():
                return rank


class CohortRecords:
    """Records of several kinds, which are made in order."""

    def __init__(self) -> None:
        self._groups: list[tuple[RecordKind, list[Row]]] = []
        self._keys: list[Array] = []
        self._order = np.empty(0, np.int64)
        self._at_ns = self._class = self._order
        self._num_made = 0

    def add(
        self,
        kind: RecordKind,
        rows: list[Row],
        event_class: int | Sequence[int],
        event: int | Sequence[int],
        place: Sequence[int],
    ) -> None:
        """Add records of a kind; those that happen at one place by one event are made as they are given.

        Args:
            kind: The kind.
            rows: The records.
            event_class: Their class, or the class of each.
            event: The event by which they are made, or that of each; NO_EVENT where there is none.
            place: Of each among what happens by its event.
        """
        keys = np.empty((4, len(rows)), np.int64)
        keys[0], keys[1], keys[2], keys[3] = [row[0] for row in rows], event_class, event, place
        self._groups.append((kind, rows))
        self._keys.append(keys)

    def sort(self, ranks: Array) -> None:
        """Bring all into order, given the ranks of events."""
        at_ns, event_class, event, place = np.concatenate(self._keys, axis=1)
        self._order = np.lexsort((place, np.append(ranks, 0)[event], event_class, at_ns))
        self._at_ns, self._class = at_ns[self._order], event_class[self._order]
        self._keys.clear()

    def make_before(self, trace: Trace, at_ns: int, event_class: int) -> None:
        """Make those before an instant, and those at the instant in a class before this one."""
        first, end = np.searchsorted(self._at_ns, [at_ns, at_ns + 1])
        end = first + np.searchsorted(self._class[first:end], event_class)
        order, self._num_made = self._order[self._num_made : end], int(end)
        if not len(order):
            return
        chosen = np.sort(order)
        groups, start = [], 0
        for kind, rows in self._groups:
            bounds = np.searchsorted(chosen, [start, start + len(rows)])
            places = chosen[slice(*bounds)] - start
            start += len(rows)
            if len(places):
                is_whole = len(places) == len(rows)
                groups.append((kind, rows if is_whole else [rows[place] for place in places.tolist()]))
        trace.record_together(groups, np.searchsorted(chosen, order).tolist())
