"""A cohort whose hooks run beforehand; what happens is recorded at its instants."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from operator import itemgetter
from typing import TYPE_CHECKING, TypeAlias

from fedsim.bus import Delivery, Header
from fedsim.bus.ledger import Ledger, Outcome
from fedsim.bus.memory import OnLink, transfer_end, transfer_start
from fedsim.clock import EventClass, Trace, VirtualTimeLoop
from fedsim.clock.event_trace import Record
from fedsim.clock.loop import to_ns
from fedsim.engine.engine import job_end, job_start
from fedsim.engine.executors.base import Promise
from fedsim.engine.requests import JobRequest
from fedsim.runtime.clients.hook_steps import Turn
from fedsim.runtime.server.open_dispatches import dispatch_record
from fedsim.wire import Message, Packed, pack

if TYPE_CHECKING:
    from fedsim.runtime.clients.cohort_driver import CohortDrivers

Arrived: TypeAlias = tuple[int, int, Message | None]
"""A reply: the place of its dispatch, its instant in ns, the message."""

MAX_TILE = 256
"""Clients whose hooks go on side by side. It bounds the memory of hooks at work."""

# Classes of what happens at an instant: those of the loop's events, and two before.
_SENT, _BEGUN, _ORDINARY, _JOIN = -2, -1, int(EventClass.ORDINARY), int(EventClass.JOIN)
_WHEN = itemgetter(0, 1)


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
    _down: list[OnLink | None] = field(default_factory=list, init=False)
    _turns: list[Turn] = field(default_factory=list, init=False)
    _requests: list[list[tuple[JobRequest, Sequence[int]]]] = field(default_factory=list, init=False)
    _up: list[tuple[OnLink, Message] | None] = field(default_factory=list, init=False)
    _start_ns: int = field(default=0, init=False)
    _arrived_down_ns: dict[int, int] = field(default_factory=dict, init=False)  # by place
    _arrived_up_ns: dict[int, int] = field(default_factory=dict, init=False)
    # What happens, in order, each with its instant in ns and its class: records; which step of whose hook
    # leaves lines for the log; whose reply leaves.
    _records: list[tuple[int, int, Record]] = field(default_factory=list, init=False)
    _notes: list[tuple[int, int, tuple[int, int]]] = field(default_factory=list, init=False)
    _departures: list[tuple[int, int, int]] = field(default_factory=list, init=False)
    _num_recorded: int = field(default=0, init=False)

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
        self._start_ns = start_ns = self.loop.now_ns
        by_ns = start_ns + to_ns(self.drivers.parts.client_timeout_s)
        down = [(start_ns, place, frame.link_bytes) for place, frame in enumerate(self._down) if frame]
        downloads = self._arrivals(down, up=False, by_ns=by_ns)
        self._arrived_down_ns = {place: at_ns for at_ns, places in downloads for place in places}
        begun = [place for place, frame in enumerate(self._down) if frame is None]
        begins_ns = dict.fromkeys(begun, start_ns) | self._arrived_down_ns
        if len(begins_ns) < len(self.headers) or not self.is_quiet_until(max(begins_ns.values())):
            return False
        try:
            for header, packed in zip(self.headers, sent, strict=True):
                self._turns.append(turn(Delivery(header, None if packed is None else packed.received)))
        except Exception:
            return False  # the loop raises it at its instant
        self._requests, self._up = [[] for _ in self.headers], [None] * len(self.headers)
        places = list(begins_ns)
        for first in range(0, len(places), MAX_TILE):
            if not self._run_tile({place: begins_ns[place] for place in places[first : first + MAX_TILE]}):
                return False
        self._order(begun, downloads)
        up = [
            (at_ns, place, reply[0].link_bytes)
            for at_ns, _, place in self._departures
            if (reply := self._up[place]) is not None
        ]
        return self._is_certain(self._arrivals(up, up=True, by_ns=by_ns), by_ns)

    def _run_tile(self, at_ns: dict[int, int]) -> bool:
        """Run hooks to their ends, all one request at a time; return whether all have ended well.

        Args:
            at_ns: Places, and when each hook begins.
        """
        engine, loop, now_ns = self.drivers.engine, self.loop, self.loop.now_ns
        try:
            while at_ns:
                promises = dict[int, Sequence[Promise]]()
                for place, goes_on_ns in at_ns.items():
                    loop.now_ns = goes_on_ns  # what a hook reads of the clock
                    request = self._turns[place].go_on_ahead()
                    if request is None:
                        self._up[place] = self._framed(place, self._turns[place].reply)
                        continue
                    ends_ns = [goes_on_ns + end_ns for end_ns in request.ends_ns()]
                    if min(ends_ns) < goes_on_ns:
                        return False
                    self._requests[place].append((request, ends_ns))
                    promises[place] = engine.submit_ahead(request, ends_ns)
                for place, submitted in promises.items():
                    request, _ = self._requests[place][-1]
                    self._turns[place].take_ahead(engine.results_ahead(request, submitted))
                at_ns = {place: self._requests[place][-1][1][-1] for place in promises}
        except (Exception, asyncio.CancelledError):
            return False  # as above
        finally:
            loop.now_ns = now_ns
        return True

    def _framed(self, place: int, reply: Message | None) -> tuple[OnLink, Message] | None:
        """Return the frame of a reply on its link, and the reply as the server receives it."""
        if reply is None:
            return None
        bus, packed = self.drivers.bus, pack(reply)
        if not bus.knows(packed):
            raise TypeError(f"{packed.kind} may not travel")
        return bus.on_link(packed, self.headers[place].exchange, up=True), packed.received

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

    def _order(self, begun: Sequence[int], downloads: Sequence[tuple[int, list[int]]]) -> None:
        """Bring all but the arrivals of replies into the order in which it would happen on the loop."""
        start_ns, records, num_asked = self._start_ns, self._records, [0] * len(self.headers)
        # Instant, class, number within the class, places of dispatches, number of the job that ends.
        heap: list[tuple[int, int, int, Sequence[int], int]] = []
        turns = count()

        def go_on(at_ns: int, event_class: int, place: int) -> None:
            number, requests = num_asked[place], self._requests[place]
            num_asked[place] += 1
            if self._turns[place].notes_ahead(number):
                self._notes.append((at_ns, event_class, (place, number)))
            if number < len(requests):
                request, ends_ns = requests[number]
                for timed in request.jobs:
                    records.append((at_ns, event_class, job_start(request, timed)))
                for job, end_ns in enumerate(ends_ns):
                    heappush(heap, (end_ns, _JOIN, next(turns), (place,), job))
                return
            self._departures.append((at_ns, event_class, place))
            if (reply := self._up[place]) is not None:
                start = transfer_start(self.headers[place], True, reply[0])
                records.append((at_ns, event_class, start))

        for header, frame in zip(self.headers, self._down, strict=True):
            records.append((start_ns, _SENT, dispatch_record(header)))
            if frame is not None:
                records.append((start_ns, _SENT, transfer_start(header, False, frame)))
        for place in begun:
            heappush(heap, (start_ns, _BEGUN, next(turns), (place,), 0))
        for at_ns, places in downloads:
            heappush(heap, (at_ns, _ORDINARY, next(turns), places, 0))
        while heap:
            at_ns, event_class, _, its_places, job = heappop(heap)
            if event_class == _JOIN:
                request, ends_ns = self._requests[its_places[0]][num_asked[its_places[0]] - 1]
                records.append((at_ns, event_class, job_end(request, request.jobs[job].job)))
                if job < len(ends_ns) - 1:
                    continue
            elif event_class == _ORDINARY:
                self._end_transfers(at_ns, its_places, up=False)
            for place in its_places:
                go_on(at_ns, event_class, place)

    def _end_transfers(self, at_ns: int, places: Sequence[int], *, up: bool) -> None:
        for place in places:
            end = transfer_end(self.headers[place], up, Outcome.DELIVERED)
            self._records.append((at_ns, _ORDINARY, end))

    def _is_certain(self, uploads: Sequence[tuple[int, list[int]]], by_ns: int) -> bool:
        """Add the arrivals of replies; return whether the order of events is certain."""
        self._arrived_up_ns = {place: at_ns for at_ns, places in uploads for place in places}
        replied_ns = {place: at_ns for at_ns, _, place in self._departures if self._up[place] is None}
        replied_ns |= self._arrived_up_ns
        if len(replied_ns) < len(self.headers) or (end_ns := max(replied_ns.values())) > by_ns:
            return False
        # Which of two events at one instant came first would depend on when the loop was told of each.
        instants = {at_ns for at_ns, event_class, _ in self._records if event_class != _SENT}
        instants.update(at_ns for at_ns, *_ in self._departures)
        if any(at_ns in instants for at_ns, _ in uploads):
            return False
        for at_ns, places in uploads:
            self._end_transfers(at_ns, places, up=True)
        self._records.sort(key=itemgetter(0))
        presence = self.drivers.presence
        return self.is_quiet_until(end_ns) and (
            presence is None
            or all(
                presence.stays(self.headers[place].receiver, self.headers[place].dispatch, at_ns)
                for place, at_ns in replied_ns.items()
            )
        )

    # In its time

    def finish_with(self, take: Callable[[Iterable[Arrived]], object]) -> None:
        """Record all in its time; call a function with the replies when the last has come."""
        self._record_before(self._start_ns, _BEGUN)
        self.loop.before = self._record_before
        last = max(self._departures[-1][:2], self._records[-1][:2])
        event_class = EventClass(max(last[1], EventClass.ORDINARY))
        self.loop.call_at_ns(last[0], self._finish, take, event_class=event_class)

    def _finish(self, take: Callable[[Iterable[Arrived]], object]) -> None:
        self.loop.before = None
        take(self.record_all())

    def record_all(self) -> list[Arrived]:
        """Record all that is left; return the replies in the order of their arrival."""
        self._record_before(max(self._departures[-1][0], self._records[-1][0]) + 1, _SENT)
        self._enter_frames()
        replies = list[Arrived]()
        for at_ns, _, place in self._departures:
            turn = self._turns[place]
            turn.forget_ahead()
            if not turn.is_copy:
                self.drivers.host.keep(turn)
            if (reply := self._up[place]) is None:
                replies.append((place, at_ns, None))
            else:
                replies.append((place, self._arrived_up_ns[place], reply[1]))
        replies.sort(key=itemgetter(1))
        return replies

    def _record_before(self, at_ns: int, event_class: int) -> None:
        """Record what happens before an instant, or at the instant in a class before this one."""
        first, end = self._num_recorded, bisect_left(self._records, (at_ns, event_class), key=_WHEN)
        self._num_recorded = end
        self.trace.record_at((record[0], record[2]) for record in self._records[first:end])
        now_ns = self.loop.now_ns
        while self._notes and self._notes[0][:2] < (at_ns, event_class):
            self.loop.now_ns, _, (place, number) = self._notes.pop(0)
            self._turns[place].write_ahead(number)
        self.loop.now_ns = now_ns

    def _enter_frames(self) -> None:
        """Enter all frames in the ledger, in the order of sending."""
        for place, frame in enumerate(self._down):
            if frame is not None:
                self._enter(place, False, frame, self._start_ns, self._arrived_down_ns[place])
        for at_ns, _, place in self._departures:
            if (reply := self._up[place]) is not None:
                self._enter(place, True, reply[0], at_ns, self._arrived_up_ns[place])

    def _enter(self, place: int, up: bool, frame: OnLink, sent_ns: int, arrived_ns: int) -> None:
        row = self.ledger.sent(sent_ns, self.headers[place], up, *frame.what)
        self.ledger.ended(arrived_ns, row, Outcome.DELIVERED)
