"""The order of what happens in a cohort that is alone: as on the loop.

An *event* is the arrival of dispatches at one instant, the beginning of a hook that is sent no frame, or the
end of a job. By an event hooks go on: each asks for jobs, whose ends are events again, or replies. Events are
ordered by instant, then by class, then by which of them was scheduled first.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedsim.clock import RecordKind, Trace
from fedsim.clock.record_columns import Column, Columns
from fedsim.params import Array

SENT, BEGUN = -2, -1
"""Classes, beside those of the loop's events, of what is sent and of hooks that begin without a frame."""

NO_EVENT = -1


class CohortEvents:
    """The events of a cohort. An event is known by its number."""

    def __init__(self) -> None:
        # Rows: instant in ns, class; event, place among what happens by it, and number of the job, by which
        # it is scheduled.
        self._events = np.empty((5, 0), np.int64)
        self._parts: list[Array] = []
        self._num_events = 0

    def add(
        self,
        at_ns: Array,
        event_class: int,
        event: Array | None = None,
        place: Array | int = 0,
        job: Array | int = 0,
    ) -> Array:
        """Add events; return their numbers.

        Args:
            at_ns: When they happen, int64 ``[events]``.
            event_class: Their class.
            event: The event by which each is scheduled; None where it is scheduled when dispatches are sent.
            place: Of what schedules it, among what happens by that event.
            job: The number of the job whose end it is, in its request.
        """
        part, first = np.empty((5, len(at_ns)), np.int64), self._num_events
        self._num_events += len(at_ns)
        numbers = np.arange(first, self._num_events)
        part[0], part[1], part[2], part[3], part[4] = (
            *(at_ns, event_class),
            *(numbers if event is None else event, place, job),
        )
        self._parts.append(part)
        return numbers

    @property
    def at_ns(self) -> Array:
        """When each happens, int64 ``[events]``."""
        instants: Array = self._all()[0]
        return instants

    def class_of(self, event: Array | int) -> Array:
        """Return the classes of events, or of one."""
        classes: Array = self._all()[1][event]
        return classes

    def ranks(self) -> Array:
        """Return the place of each event in the order of all, int64 ``[events]``."""
        at_ns, event_class, event, place, job = self._all()
        rank = np.arange(len(event))
        while True:
            # At one instant the order is that of the causes, which come before.
            order = np.lexsort((job, place, rank[event], event_class, at_ns))
            before, rank = rank, np.empty_like(rank)
            rank[order] = np.arange(len(order))
            if (rank == before).all():
                return rank

    def _all(self) -> Array:
        if self._parts:
            self._events = np.concatenate([self._events, *self._parts], axis=1)
            self._parts.clear()
        return self._events


class CohortRecords:
    """Records of several kinds, which are made in order."""

    def __init__(self) -> None:
        self._groups: list[tuple[RecordKind, Columns]] = []
        self._keys: list[Array] = []
        self._order = np.empty(0, np.int64)
        self._at_ns = self._class = self._order
        self._num_made = 0

    def add(
        self,
        kind: RecordKind,
        at_ns: Array,
        values: Sequence[Column],
        event_class: Array | int,
        event: Array | int,
        place: Array | int,
    ) -> None:
        """Add records of a kind; those that happen at one place by one event are made as they are given.

        Args:
            kind: The kind.
            at_ns: When they are made, int64 ``[records]``.
            values: Their values in columns.
            event_class: Their class, or the class of each.
            event: The event by which they are made, or that of each; NO_EVENT where there is none.
            place: Of each among what happens by its event.
        """
        keys = np.empty((4, len(at_ns)), np.int64)
        keys[0], keys[1], keys[2], keys[3] = at_ns, event_class, event, place
        self._groups.append((kind, Columns(len(at_ns), [at_ns, *values])))
        self._keys.append(keys)

    def sort(self, ranks: Array) -> None:
        """Bring all into order, given the ranks of events."""
        at_ns, event_class, event, place = np.concatenate(self._keys, axis=1)
        self._order = np.lexsort((place, np.append(ranks, 0)[event], event_class, at_ns))
        self._at_ns, self._class = at_ns[self._order], event_class[self._order]
        self._keys.clear()

    def make_before(self, trace: Trace, at_ns: int, event_class: int) -> None:
        """Make those before an instant, and those at the instant in a class before this one."""
        first, end = int(self._at_ns.searchsorted(at_ns)), int(self._at_ns.searchsorted(at_ns, "right"))
        end = first + int(self._class[first:end].searchsorted(event_class))
        order, self._num_made = self._order[self._num_made : end], end
        if not len(order):
            return
        chosen = np.sort(order)
        groups, start = [], 0
        for kind, columns in self._groups:
            first = int(chosen.searchsorted(start))
            end = int(chosen.searchsorted(start + columns.num_records))
            places = chosen[first:end] - start
            start += columns.num_records
            if len(places):
                is_whole = len(places) == columns.num_records
                groups.append((kind, columns if is_whole else columns.chosen(places)))
        trace.record_together(groups, chosen.searchsorted(order).tolist())
