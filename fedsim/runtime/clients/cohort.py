"""A cohort whose hooks run beforehand; its events are recorded at their instants."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, TypeAlias, cast

from fedsim.bus import Delivery, Header, MemoryBus
from fedsim.bus.ledger import Outcome
from fedsim.bus.memory import OnLink
from fedsim.clock import EventClass, Trace, VirtualTimeLoop
from fedsim.clock.loop import to_ns
from fedsim.engine.engine import record_end, record_start
from fedsim.engine.executors.base import Promise
from fedsim.engine.requests import JobRequest
from fedsim.runtime.clients.hook_steps import Turn
from fedsim.wire import Message, Packed, pack

if TYPE_CHECKING:
    from fedsim.runtime.clients.cohort_driver import CohortDrivers

Take: TypeAlias = Callable[[Iterable[tuple[int, int, Message | None]]], object]

MAX_TILE = 256
"""Clients whose hooks go on side by side. It bounds the memory of hooks at work."""

_BEGUN, _ORDINARY, _JOIN = -1, int(EventClass.ORDINARY), int(EventClass.JOIN)
_ARRIVED, _JOB_ENDED, _REPLIED = range(3)

_Event: TypeAlias = tuple[int, int, int, int, Sequence[int], int]
"""Instant in ns, class, number within the class, what happens, places of dispatches, number of a job."""


@dataclass(eq=False, slots=True)
class Cohort:
    """A cohort whose hooks run beforehand.

    Attributes:
        drivers: What drives it.
        headers: Those of the dispatches, in the order of sending.
        loop: The loop.
        num_runnable: Tasks of the server that have not started yet.
        bus: Where frames are entered.
        trace: Where everything is recorded.
    """

    drivers: CohortDrivers
    headers: Sequence[Header]
    loop: VirtualTimeLoop
    num_runnable: int
    bus: MemoryBus
    trace: Trace
    _down: list[OnLink | None] = field(default_factory=list, init=False)
    _turns: list[Turn] = field(default_factory=list, init=False)
    _requests: list[list[tuple[JobRequest, Sequence[int]]]] = field(default_factory=list, init=False)
    _ended_ns: dict[int, int] = field(default_factory=dict, init=False)
    _up: dict[int, tuple[OnLink, Message] | None] = field(default_factory=dict, init=False)
    _events: list[_Event] = field(default_factory=list, init=False)
    _next_event: int = field(default=0, init=False)
    _rows: dict[int, int] = field(default_factory=dict, init=False)
    _replies: list[tuple[int, int, Message | None]] = field(default_factory=list, init=False)

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
        start_ns, by = self.loop.now_ns, self.drivers
        by_ns = start_ns + to_ns(by.parts.client_timeout_s)
        down_bytes = {place: on_link.link_bytes for place, on_link in enumerate(self._down) if on_link}
        departures = [(start_ns, place) for place in down_bytes]
        downloads = self._arrivals(departures, down_bytes, up=False, by_ns=by_ns)
        arrived_ns = {place: at_ns for at_ns, places in downloads for place in places}
        begun = [place for place, frame in enumerate(self._down) if frame is None]
        arrived_ns = dict.fromkeys(begun, start_ns) | arrived_ns
        if len(arrived_ns) < len(self.headers) or not self.is_quiet_until(max(arrived_ns.values())):
            return False
        try:
            for header, packed in zip(self.headers, sent, strict=True):
                self._turns.append(turn(Delivery(header, None if packed is None else packed.received)))
        except Exception:
            return False  # the loop raises it at its instant
        self._requests = [[] for _ in self.headers]
        places = list(arrived_ns)
        for first in range(0, len(places), MAX_TILE):
            if not self._run_tile({place: arrived_ns[place] for place in places[first : first + MAX_TILE]}):
                return False
        self._order(start_ns, begun, downloads)
        up_bytes = {place: reply[0].link_bytes for place, reply in self._up.items() if reply is not None}
        departures = [(at_ns, place) for at_ns, place in self._departures() if place in up_bytes]
        uploads = self._arrivals(departures, up_bytes, up=True, by_ns=by_ns)
        return self._is_certain(uploads, by_ns)

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
                        self._ended_ns[place] = goes_on_ns
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
        self, departures: Sequence[tuple[int, int]], num_bytes: Mapping[int, int], *, up: bool, by_ns: int
    ) -> list[tuple[int, list[int]]]:
        """Return when frames arrive: instants in ns, and the places of the dispatches.

        Args:
            departures: Instant in ns and place, in order.
            num_bytes: The length of each frame on its link, by place.
            up: Whether they go to the server.
            by_ns: Those that arrive later are left out.
        """
        parcels = [(at_ns, self.headers[place].receiver, num_bytes[place]) for at_ns, place in departures]
        arrivals = self.drivers.carrier.arrivals(parcels, up=up, all_at_once=not up, by_ns=by_ns)
        return [(at_ns, [departures[number][1] for number in numbers]) for at_ns, numbers in arrivals]

    def _order(self, start_ns: int, begun: Sequence[int], downloads: Sequence[tuple[int, list[int]]]) -> None:
        """Bring all events but the arrivals of replies into the order in which the loop would run them."""
        heap: list[_Event] = []
        turns = count()

        def add(at_ns: int, event_class: int, what: int, places: Sequence[int], job: int = 0) -> None:
            heappush(heap, (at_ns, event_class, next(turns), what, places, job))

        for place in begun:
            add(start_ns, _BEGUN, _ARRIVED, (place,))
        for at_ns, places in downloads:
            add(at_ns, _ORDINARY, _ARRIVED, places)
        num_asked = [0] * len(self.headers)
        while heap:
            event = heappop(heap)
            self._events.append(event)
            what, job = event[3], event[5]
            for place in event[4]:
                requests, number = self._requests[place], num_asked[place]
                if what == _JOB_ENDED and job < len(requests[number - 1][1]) - 1:
                    continue
                if number < len(requests):
                    num_asked[place] += 1
                    for index, end_ns in enumerate(requests[number][1]):
                        add(end_ns, _JOIN, _JOB_ENDED, (place,), index)

    def _departures(self) -> list[tuple[int, int]]:
        """Return when replies leave, in order: instant in ns, place."""
        last = {place: number for number, event in enumerate(self._events) for place in event[4]}
        return [(self._ended_ns[place], place) for place in sorted(last, key=last.__getitem__)]

    def _is_certain(self, uploads: Sequence[tuple[int, list[int]]], by_ns: int) -> bool:
        """Add the arrivals of replies to the events; return whether the order of events is certain."""
        up = self._up
        replied_ns = {place: at_ns for at_ns, places in uploads for place in places}
        replied_ns |= {place: at_ns for place, at_ns in self._ended_ns.items() if up[place] is None}
        if len(replied_ns) < len(self.headers) or max(replied_ns.values()) > by_ns:
            return False
        # Which of two events at one instant came first would depend on when the loop was told of each.
        instants = {event[0] for event in self._events}
        if any(at_ns in instants for at_ns, _ in uploads):
            return False
        self._events += [(at_ns, _ORDINARY, 0, _REPLIED, places, 0) for at_ns, places in uploads]
        self._events.sort(key=lambda event: event[0])
        presence = self.drivers.presence
        return self.is_quiet_until(self._events[-1][0]) and (
            presence is None
            or all(
                presence.stays(self.headers[place].receiver, self.headers[place].dispatch, at_ns)
                for place, at_ns in replied_ns.items()
            )
        )

    # In its time

    def record_sent(self, place: int) -> None:
        """Record that a dispatch is sent now."""
        frame = self._down[place]
        if frame is not None:
            self._rows[place] = self.bus.record_start(self.headers[place], frame)

    def finish_with(self, take: Take) -> None:
        """Call a function with the replies when the last has come."""
        end_ns, event_class, *_ = self._events[-1]
        self.loop.before = self._record_before
        self.loop.call_at_ns(
            end_ns, self._finish, take, event_class=EventClass(max(event_class, EventClass.ORDINARY))
        )

    def _finish(self, take: Take) -> None:
        self.loop.before = None
        take(self.record_all())

    def record_all(self) -> list[tuple[int, int, Message | None]]:
        """Record all that is left; return the replies: place, instant in ns, message."""
        self._record_before(self._events[-1][0] + 1, _ORDINARY)
        return self._replies

    def _record_before(self, at_ns: int, event_class: int) -> None:
        """Record the events before an instant, and those at the instant that come before a class."""
        now_ns = self.loop.now_ns
        while self._next_event < len(self._events):
            event = self._events[self._next_event]
            if event[:2] >= (at_ns, event_class):
                break
            self._next_event += 1
            self.loop.now_ns = event[0]
            self._record(event)
        self.loop.now_ns = now_ns

    def _record(self, event: _Event) -> None:
        """Record an event, now."""
        at_ns, _, _, what, places, job = event
        bus, headers = self.bus, self.headers
        if what == _JOB_ENDED:
            (place,) = places
            request, ends_ns = self._requests[place][0]
            record_end(self.trace, request, request.jobs[job].job)
            if job == len(ends_ns) - 1:
                del self._requests[place][0]
                self._go_on(place, at_ns)
        elif what == _ARRIVED:
            for place in places:
                if self._down[place] is not None:
                    bus.record_end(headers[place], self._rows[place], Outcome.DELIVERED)
            for place in places:
                self._go_on(place, at_ns)
        else:
            for place in places:
                bus.record_end(headers[place].reply(), self._rows[place], Outcome.DELIVERED)
                self._replies.append((place, at_ns, cast("tuple[OnLink, Message]", self._up.pop(place))[1]))

    def _go_on(self, place: int, at_ns: int) -> None:
        """Record what a hook does when it goes on: it starts jobs, or it replies."""
        turn = self._turns[place]
        request = turn.go_on()
        if request is not None:
            for timed in request.jobs:
                record_start(self.trace, request, timed)
            return
        if not self.drivers.parts.verify:  # else these are copies
            self.drivers.host.keep(turn)
        reply = self._up[place]
        if reply is None:
            self._replies.append((place, at_ns, None))
        else:
            self._rows[place] = self.bus.record_start(self.headers[place].reply(), reply[0])
