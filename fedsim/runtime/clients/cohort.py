"""A cohort whose hooks run beforehand; what happens is recorded at its instants."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from fedsim.bus import Delivery, Header
from fedsim.bus.ledger import Ledger, Outcome
from fedsim.bus.memory import TRANSFER_END, TRANSFER_START, OnLink, transfer_end_values, transfer_start_values
from fedsim.clock import EventClass, Trace, VirtualTimeLoop
from fedsim.clock.event_trace import LAST_NS, Row
from fedsim.clock.loop import to_ns
from fedsim.engine.engine import JOB_END, JOB_START, job_end_values, job_start_values
from fedsim.engine.executors.base import Promise
from fedsim.engine.requests import JobRequest, TimedJob
from fedsim.params import Array
from fedsim.runtime.clients.cohort_records import (
    BEGUN,
    NO_EVENT,
    SENT,
    Cause,
    CohortEvents,
    CohortRecords,
)
from fedsim.runtime.clients.hook_steps import Turn
from fedsim.runtime.server.open_dispatches import DISPATCH, dispatch_values
from fedsim.wire import Message, Packed, pack

if TYPE_CHECKING:
    from fedsim.runtime.clients.cohort_driver import CohortDrivers

Arrived: TypeAlias = tuple[int, int, Message | None]
"""A reply: the place of its dispatch, its instant in ns, the message."""

MAX_TILE = 256
"""Clients whose hooks go on side by side. It bounds the memory of hooks at work."""

_ORDINARY, _JOIN, _DELIVERED = int(EventClass.ORDINARY), int(EventClass.JOIN), Outcome.DELIVERED


@dataclass(eq=False, slots=True)
class Cohort:
    """A cohort whose hooks run beforehand.

    Attributes:
        drivers: What drives it.
        headers: Those of the dispatches, in the order of sending.
        loop: The loop.
        num_runnable: Tasks of the server that have not started yet.
        ledger: Where frames are entered.
        trace: Where everything is recorded.
    """

    drivers: CohortDrivers
    headers: Sequence[Header]
    loop: VirtualTimeLoop
    num_runnable: int
    ledger: Ledger
    trace: Trace
    _start_ns: int = field(default=0, init=False)
    _turns: list[Turn] = field(default_factory=list, init=False)
    _events: CohortEvents = field(default_factory=CohortEvents, init=False)
    _records: CohortRecords = field(default_factory=CohortRecords, init=False)
    # Of each dispatch, by its place: its frames and when they arrive, and when and why its hook goes on next.
    _down: list[OnLink | None] = field(default_factory=list, init=False)
    _up: list[OnLink | None] = field(default_factory=list, init=False)
    _replies: list[Message | None] = field(default_factory=list, init=False)
    _arrived_ns: list[int] = field(default_factory=list, init=False)
    _replied_ns: list[int] = field(default_factory=list, init=False)
    _goes_on_ns: list[int] = field(default_factory=list, init=False)
    _causes: list[Cause] = field(default_factory=list, init=False)
    # Of each job that a hook asks for: place and cause, when it starts and when it ends.
    _jobs: list[tuple[int, Cause, int, int]] = field(default_factory=list, init=False)
    _timed: list[TimedJob] = field(default_factory=list, init=False)
    # Of each step that leaves lines for the log: when and why it comes, place, and number of the step.
    _notes: list[tuple[int, Cause, int, int]] = field(default_factory=list, init=False)
    _departures: list[int] = field(default_factory=list, init=False)  # places, in order

    def is_quiet_until(self, at_ns: int) -> bool:
        """Return whether up to an instant nothing happens but the ends of the server's jobs."""
        return self.loop.is_quiet_until(at_ns, apart_from=EventClass.JOIN, num_runnable=self.num_runnable)

    def knows_kinds(self, sent: Sequence[Packed | None]) -> bool:
        """Return whether all messages are of kinds that may travel; keep the lengths of their frames."""
        bus, frames = self.drivers.bus, dict[int, OnLink | None]()
        for packed in {id(packed): packed for packed in sent}.values():
            if packed is not None and not bus.knows(packed):
                return False
            exchange = self.headers[0].exchange
            frames[id(packed)] = None if packed is None else bus.on_link(packed, exchange, up=False)
        self._down = [frames[id(packed)] for packed in sent]
        return True

    # Beforehand

    def run_ahead(self, sent: Sequence[Packed | None], turn: Callable[[Delivery], Turn]) -> bool:
        """Run all hooks; return whether the events and their order are certain.

        Args:
            sent: What each dispatch carries.
            turn: Makes the turns of clients.
        """
        self._start_ns, num_clients = self.loop.now_ns, len(self.headers)
        by_ns = self._start_ns + to_ns(self.drivers.parts.client_timeout_s)
        down = [(self._start_ns, place, frame.link_bytes) for place, frame in enumerate(self._down) if frame]
        downloads = self._arrivals(down, up=False, by_ns=by_ns)
        places = self._begin(downloads)
        if len(places) < num_clients or not self.is_quiet_until(max(self._arrived_ns)):
            return False
        try:
            for header, packed in zip(self.headers, sent, strict=True):
                self._turns.append(turn(Delivery(header, None if packed is None else packed.received)))
        except Exception:
            return False  # the loop raises it at its instant
        self._up, self._replies = [None] * num_clients, [None] * num_clients
        for first in range(0, num_clients, MAX_TILE):
            if not self._run_tile(places[first : first + MAX_TILE]):
                return False
        ranks = self._events.ranks()
        self._departures = self._in_order(ranks, self._goes_on_ns, self._causes)
        up = [
            (self._goes_on_ns[place], place, frame.link_bytes)
            for place in self._departures
            if (frame := self._up[place]) is not None
        ]
        uploads = self._arrivals(up, up=True, by_ns=by_ns)
        self._replied_ns = self._goes_on_ns.copy()
        for at_ns, its_places in uploads:
            for place in its_places:
                self._replied_ns[place] = at_ns
        num_arrived = sum(len(its_places) for _, its_places in uploads)
        if num_arrived < len(up) or not self._is_certain(uploads, by_ns):
            return False
        self._record(ranks, downloads, uploads)
        return True

    def _begin(self, downloads: Sequence[tuple[int, list[int]]]) -> list[int]:
        """Add the events by which hooks begin; return the places of those that do, in order."""
        begun = [place for place, frame in enumerate(self._down) if frame is None]
        self._arrived_ns = [self._start_ns] * len(self.headers)
        self._causes = [(NO_EVENT, 0)] * len(self.headers)
        for place in begun:
            self._causes[place] = self._events.begin(self._start_ns, BEGUN), 1
        for at_ns, places in downloads:
            event = self._events.begin(at_ns, _ORDINARY)
            for number, place in enumerate(places, len(places)):
                self._arrived_ns[place] = at_ns
                self._causes[place] = event, number
        self._goes_on_ns = self._arrived_ns.copy()
        return [*begun, *(place for _, places in downloads for place in places)]

    def _run_tile(self, places: Sequence[int]) -> bool:
        """Run hooks to their ends, all one request at a time; return whether all have ended well."""
        engine, loop, now_ns = self.drivers.engine, self.loop, self.loop.now_ns
        number = 0  # of the step
        try:
            while places:
                submitted = list[tuple[int, JobRequest, Sequence[Promise]]]()
                for place in places:
                    turn = self._turns[place]
                    loop.now_ns = goes_on_ns = self._goes_on_ns[place]  # what a hook reads of the clock
                    request = turn.go_on_ahead()
                    if turn.has_notes(number):
                        self._notes.append((goes_on_ns, self._causes[place], place, number))
                    if request is None:
                        self._keep_reply(place, turn.reply)
                        continue
                    ends_ns = [goes_on_ns + end_ns for end_ns in request.ends_ns()]
                    if min(ends_ns) < goes_on_ns:
                        return False
                    cause = self._causes[place]
                    self._timed += request.jobs
                    self._jobs += [(place, cause, goes_on_ns, end_ns) for end_ns in ends_ns]
                    self._goes_on_ns[place] = ends_ns[-1]
                    self._causes[place] = self._events.end_jobs(ends_ns, cause)
                    submitted.append((place, request, engine.submit_ahead(request, ends_ns)))
                for place, request, promises in submitted:
                    self._turns[place].done.append(engine.results_ahead(request, promises))
                places = [place for place, *_ in submitted]
                number += 1
        except (Exception, asyncio.CancelledError):
            return False  # as above
        finally:
            loop.now_ns = now_ns
        return True

    def _keep_reply(self, place: int, reply: Message | None) -> None:
        """Keep a reply as the server receives it, and the length of its frame."""
        if reply is None:
            return
        bus, packed = self.drivers.bus, pack(reply)
        if not bus.knows(packed):
            raise TypeError(f"{packed.kind} may not travel")
        self._up[place] = bus.on_link(packed, self.headers[place].exchange, up=True)
        self._replies[place] = packed.received

    def _arrivals(
        self, departures: Sequence[tuple[int, int, int]], *, up: bool, by_ns: int
    ) -> list[tuple[int, list[int]]]:
        """Return when frames arrive: instants in ns, and the places of the dispatches.

        Args:
            departures: Instant in ns, place, and length on the link of each frame, in order.
            up: Whether they go to the server.
            by_ns: Those that arrive later are left out.
        """
        parcels = [(at_ns, self.headers[place].receiver, num_bytes) for at_ns, place, num_bytes in departures]
        arrivals = self.drivers.carrier.arrivals(parcels, up=up, all_at_once=not up, by_ns=by_ns)
        return [(at_ns, [departures[number][1] for number in numbers]) for at_ns, numbers in arrivals]

    def _in_order(self, ranks: Array, at_ns: Sequence[int], causes: Sequence[Cause]) -> list[int]:
        """Return the order of what happens by some causes."""
        event, place = np.array(causes, np.int64).reshape(-1, 2).T
        event_class = np.array(self._events.event_class, np.int64)[event]
        order: list[int] = np.lexsort((place, ranks[event], event_class, np.array(at_ns, np.int64))).tolist()
        return order

    def _is_certain(self, uploads: Sequence[tuple[int, list[int]]], by_ns: int) -> bool:
        """Return whether the order of events is certain."""
        if (end_ns := max(self._replied_ns)) > by_ns:
            return False
        # Which of two events at one instant came first would depend on when the loop was told of each.
        if not set(self._events.at_ns).isdisjoint(at_ns for at_ns, _ in uploads):
            return False
        presence = self.drivers.presence
        return self.is_quiet_until(end_ns) and (
            presence is None
            or all(
                presence.stays(header.receiver, header.dispatch, at_ns)
                for header, at_ns in zip(self.headers, self._replied_ns, strict=True)
            )
        )

    def _record(
        self,
        ranks: Array,
        downloads: Sequence[tuple[int, list[int]]],
        uploads: Sequence[tuple[int, list[int]]],
    ) -> None:
        """Make the records of all that happens."""
        start_ns, headers, add = self._start_ns, self.headers, self._records.add
        places = range(len(headers))
        add(DISPATCH, [(start_ns, *dispatch_values(header)) for header in headers], SENT, NO_EVENT, places)
        sent = [place for place in places if self._down[place] is not None]
        first_event = len(places) - len(sent)  # behind those of hooks that are sent no frame
        add(TRANSFER_START, self._starts(sent, [start_ns] * len(sent), up=False), SENT, NO_EVENT, sent)
        events = [event for event, (_, arrived) in enumerate(downloads, first_event) for _ in arrived]
        self._add_ends(downloads, events, up=False)
        self._add_jobs(first_event + len(downloads))
        leaving = [place for place in self._departures if self._up[place] is not None]
        left_ns = [self._goes_on_ns[place] for place in leaving]
        why = self._why([self._causes[place] for place in leaving])
        add(TRANSFER_START, self._starts(leaving, left_ns, up=True), *why)
        self._add_ends(uploads, NO_EVENT, up=True)
        self._records.sort(ranks)
        notes = self._notes
        order = self._in_order(ranks, [at_ns for at_ns, *_ in notes], [cause for _, cause, *_ in notes])
        self._notes = [notes[number] for number in order]

    def _starts(self, places: Sequence[int], at_ns: Sequence[int], *, up: bool) -> list[Row]:
        """Return the records of frames that are sent."""
        frames = self._up if up else self._down
        return [
            (sent_ns, *transfer_start_values(self.headers[place], up, frame.what))
            for place, sent_ns in zip(places, at_ns, strict=True)
            if (frame := frames[place]) is not None
        ]

    def _add_ends(
        self, arrivals: Sequence[tuple[int, list[int]]], event: int | Sequence[int], *, up: bool
    ) -> None:
        """Add the records of frames that arrive."""
        rows = [
            (at_ns, *transfer_end_values(self.headers[place], up, _DELIVERED))
            for at_ns, places in arrivals
            for place in places
        ]
        order = [number for _, places in arrivals for number in range(len(places))]
        self._records.add(TRANSFER_END, rows, _ORDINARY, event, order)

    def _add_jobs(self, first_event: int) -> None:
        """Add the records of jobs, whose ends are events from a number on."""
        headers, jobs = self.headers, list(zip(self._jobs, self._timed, strict=True))
        of = [(headers[place].receiver, headers[place].dispatch) for place, *_ in self._jobs]
        starts = [(job[2], *job_start_values(*of[n], timed)) for n, (job, timed) in enumerate(jobs)]
        ends = [(job[3], *job_end_values(*of[n], timed.job)) for n, (job, timed) in enumerate(jobs)]
        self._records.add(JOB_START, starts, *self._why([cause for _, cause, *_ in self._jobs]))
        events = range(first_event, first_event + len(ends))
        self._records.add(JOB_END, ends, _JOIN, events, [0] * len(ends))

    def _why(self, causes: Sequence[Cause]) -> tuple[list[int], list[int], list[int]]:
        """Return class, event and place of what happens by some causes."""
        class_of = self._events.event_class
        events = [event for event, _ in causes]
        return [class_of[event] for event in events], events, [place for _, place in causes]

    # In its time

    def finish_with(self, take: Callable[[Iterable[Arrived]], object]) -> None:
        """Record all in its time; call a function with the replies when the last has come."""
        self._record_before(self._start_ns, BEGUN)
        self.loop.before = self._record_before
        end_ns, last = max(self._replied_ns), self._departures[-1]
        event_class = EventClass.ORDINARY
        if self._up[last] is None and self._replied_ns[last] == end_ns:
            event_class = EventClass(max(event_class, self._events.event_class[self._causes[last][0]]))
        self.loop.call_at_ns(end_ns, self._finish, take, event_class=event_class)

    def _finish(self, take: Callable[[Iterable[Arrived]], object]) -> None:
        self.loop.before = None
        take(self.record_all())

    def record_all(self) -> list[Arrived]:
        """Record all that is left; return the replies in the order of their arrival."""
        self._record_before(LAST_NS, SENT)
        self._enter_frames()
        for turn in (self._turns[place] for place in self._departures):
            turn.forget_ahead()
            if not turn.is_copy:
                self.drivers.host.keep(turn)
        order = sorted(self._departures, key=self._replied_ns.__getitem__)
        return [(place, self._replied_ns[place], self._replies[place]) for place in order]

    def _record_before(self, at_ns: int, event_class: int) -> None:
        """Record what happens before an instant, or at the instant in a class before this one."""
        self._records.make_before(self.trace, at_ns, event_class)
        class_of, now_ns = self._events.event_class, self.loop.now_ns
        while self._notes and (self._notes[0][0], class_of[self._notes[0][1][0]]) < (at_ns, event_class):
            self.loop.now_ns, _, place, number = self._notes.pop(0)
            self._turns[place].write_notes(number)
        self.loop.now_ns = now_ns

    def _enter_frames(self) -> None:
        """Enter all frames in the ledger, in the order of sending."""
        headers = self.headers
        frames = [
            (self._arrived_ns[place], self._start_ns, headers[place], False, frame.what)
            for place, frame in enumerate(self._down)
            if frame is not None
        ]
        frames += [
            (self._replied_ns[place], self._goes_on_ns[place], headers[place], True, frame.what)
            for place in self._departures
            if (frame := self._up[place]) is not None
        ]
        self.ledger.delivered(frames)
