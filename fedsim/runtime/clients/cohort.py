"""A cohort whose hooks run beforehand; what happens is recorded at its instants."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from fedsim.bus import Delivery, Header
from fedsim.bus.ledger import Ledger, Outcome
from fedsim.bus.memory import (
    CODED,
    TRANSFER_END,
    TRANSFER_START,
    OnLink,
    coded_values,
    transfer_end_values,
    transfer_start_values,
)
from fedsim.clock import EventClass, Trace, VirtualTimeLoop
from fedsim.clock.event_trace import LAST_NS
from fedsim.clock.loop import to_ns
from fedsim.clock.record_columns import Column, column, joined
from fedsim.engine.cost import durations_s as durations_s_of
from fedsim.engine.cost import spans_of
from fedsim.engine.engine import DONE, FIT, JOB_END, JOB_START, job_values
from fedsim.engine.executors.base import Promise
from fedsim.engine.requests import JobRequest
from fedsim.network.base import Arrivals, Departures, TimetableCarrier
from fedsim.params import Array, Tree
from fedsim.rng import Key
from fedsim.runtime.clients.cohort_frames import NO_FRAME, Frames
from fedsim.runtime.clients.cohort_records import BEGUN, NO_EVENT, SENT, CohortEvents, CohortRecords
from fedsim.runtime.clients.hook_steps import Turn
from fedsim.runtime.clients.leading_hook import LeadingHook
from fedsim.runtime.clients.shared_hook import SharedHook, SharedReplies, loads_of_jobs, taken_apart
from fedsim.runtime.server.open_dispatches import DISPATCH, Arrival, dispatch_values
from fedsim.wire import SERVER, Message, Packed, pack

if TYPE_CHECKING:
    from fedsim.runtime.clients.cohort_driver import CohortDrivers

MAX_TILE = 256
"""Clients whose hooks go on side by side. It bounds the memory of hooks at work."""

_ORDINARY, _JOIN = EventClass.ORDINARY, EventClass.JOIN


class _Jobs(NamedTuple):
    """Jobs for which hooks ask.

    Attributes:
        place: Those of the dispatches.
        event: The event by which the hook asks.
        number: The place of the hook among what happens by this event.
        start_ns: When the job starts.
        end_ns: When it ends.
        ends: The event that is its end.
        values: What the trace has of it (:func:`fedsim.engine.engine.job_values`), in columns.
    """

    place: Array
    event: Array
    number: Array
    start_ns: Array
    end_ns: Array
    ends: Array
    values: Sequence[Column]


class _Group(NamedTuple):
    """Like clients whose hooks have run as one.

    Attributes:
        hook: What their hooks do.
        trees: Those of the message that they have received.
        places: Those of the dispatches.
        counts: The numbers in the keys of their hooks.
        ends_ns: When their jobs end, ``[clients, jobs]``.
        key: Of the hook of one client.
    """

    hook: SharedHook
    trees: Sequence[Tree]
    places: Sequence[int]
    counts: Sequence[Sequence[int]]
    ends_ns: Array
    key: Key


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
    _start_ns: int = field(init=False)
    _columns: Any = field(init=False)  # the headers, as one with arrays where they differ
    _turns: dict[int, Turn] = field(default_factory=dict, init=False)  # by place, unless a shared hook runs
    _groups: list[_Group] = field(default_factory=list, init=False)
    _started: list[tuple[Sequence[int], SharedReplies]] = field(default_factory=list, init=False)
    _events: CohortEvents = field(default_factory=CohortEvents, init=False)
    _records: CohortRecords = field(default_factory=CohortRecords, init=False)
    # Of each dispatch, by its place: its frames and when they arrive.
    _down: Frames = field(init=False)
    _up: Frames = field(init=False)
    _replies: list[Message | None] = field(init=False)
    _like: list[SharedReplies | None] = field(init=False)
    _arrived_ns: Array = field(init=False)
    _arrived_by: Array = field(init=False)  # the events
    _replied_ns: Array = field(init=False)
    # When its hook goes on next, and why: the event, and its place among what happens by the event.
    _goes_on_ns: Array = field(init=False)
    _event: Array = field(init=False)
    _number: Array = field(init=False)
    _jobs: list[_Jobs] = field(default_factory=list, init=False)
    # Of each step that leaves lines for the log: when and why it comes, place, and number of the step.
    _notes: list[tuple[int, int, int, int, int]] = field(default_factory=list, init=False)
    _departures: Array = field(init=False)  # places, in order
    _end: tuple[int, int] = field(init=False)  # instant in ns, class

    def __post_init__(self) -> None:
        headers, count = self.headers, len(self.headers)
        parts = [(header.receiver, header.dispatch, header.turn) for header in headers]
        clients, dispatches, turns = zip(*parts, strict=True)
        columns: Any = np.array(clients), np.array(dispatches), column(turns)
        self._columns = Header(SERVER, columns[0], headers[0].round, headers[0].exchange, *columns[1:])
        self._start_ns = self.loop.now_ns
        self._down, self._up, self._replies = Frames(count), Frames(count), [None] * count
        self._like = [None] * count
        self._arrived_ns = np.full(count, self._start_ns)
        self._event, self._number = np.full(count, NO_EVENT), np.zeros(count, np.int64)

    def is_quiet_until(self, at_ns: int) -> bool:
        """Return whether up to an instant nothing happens but the ends of the server's jobs."""
        return self.loop.is_quiet_until(at_ns, apart_from=EventClass.JOIN, num_runnable=self.num_runnable)

    def knows_kinds(self, sent: Sequence[Packed | None]) -> bool:
        """Return whether all messages are of kinds that may travel; keep the lengths of their frames."""
        bus, messages = self.drivers.bus, {id(packed): packed for packed in sent}
        if not all(packed is None or bus.knows(packed) for packed in messages.values()):
            return False
        exchange = self._columns.exchange
        frames = {
            key: self._down.number_of(None if packed is None else bus.on_link(packed, exchange, up=False))
            for key, packed in messages.items()
        }
        self._down.number[:] = [frames[id(packed)] for packed in sent]
        return True

    # Beforehand

    def run_ahead(self, sent: Sequence[Packed | None], turn: Callable[[Delivery], Turn]) -> bool:
        """Run all hooks; return whether the events and their order are certain.

        Args:
            sent: What each dispatch carries.
            turn: Makes the turns of clients.
        """
        by_ns = self._start_ns + to_ns(self.drivers.parts.client_timeout_s)
        framed = np.flatnonzero(self._down.number != NO_FRAME)
        downloads = self._arrivals(self._arrived_ns, framed, up=False, by_ns=by_ns)
        self._arrived_ns[downloads.place] = downloads.at_ns
        if len(downloads.place) < len(framed) or not self.is_quiet_until(int(self._arrived_ns.max())):
            return False
        places = self._begin(downloads)

        def begin(place: int, leading: LeadingHook | None = None) -> Turn:
            packed = sent[place]
            message = None if packed is None else packed.received
            begun = turn(Delivery(self.headers[place], message if leading is None else leading.message))
            self._turns[place], begun.leading = begun, leading
            return begun

        try:
            if not self._run_shared(sent, begin):
                return False
            done = {place for group in self._groups for place in group.places}
            alone = [place for place in places.tolist() if place not in done]
            for place in alone:
                if place not in self._turns:
                    begin(place)
        except (Exception, asyncio.CancelledError):
            return False  # the loop raises it at its instant
        if not all(
            self._run_tile(alone[first : first + MAX_TILE]) for first in range(0, len(alone), MAX_TILE)
        ):
            return False
        ranks = self._events.ranks()
        self._departures = self._in_order(ranks, self._goes_on_ns, self._event, self._number)
        leaving = self._departures[self._up.number[self._departures] != NO_FRAME]
        uploads = self._arrivals(self._goes_on_ns, leaving, up=True, by_ns=by_ns)
        self._replied_ns = self._goes_on_ns.copy()
        self._replied_ns[uploads.place] = uploads.at_ns
        if len(uploads.place) < len(leaving) or not self._is_certain(uploads, by_ns):
            return False
        self._start_shared()
        self._record(ranks, downloads, leaving, uploads)
        return True

    def _begin(self, downloads: Arrivals) -> Array:
        """Add the events by which hooks begin; return the places of all, in order."""
        begun = np.flatnonzero(self._down.number == NO_FRAME)
        self._event[begun] = self._events.add(self._arrived_ns[begun], BEGUN)
        self._number[begun] = 1
        is_first = downloads.number == 0
        events = self._events.add(downloads.at_ns[is_first], _ORDINARY)
        of_each = np.cumsum(is_first) - 1
        self._event[downloads.place] = events[of_each]
        # All dispatches of an instant arrive before any hook begins.
        self._number[downloads.place] = downloads.number + np.bincount(of_each)[of_each]
        self._arrived_by = self._event.copy()
        self._goes_on_ns = self._arrived_ns.copy()
        return np.concatenate([begun, downloads.place])

    def _run_shared(self, sent: Sequence[Packed | None], begin: Callable[..., Turn]) -> bool:
        """Run hooks that can run for several clients; return whether all have ended well."""
        drivers, exchange = self.drivers, self._columns.exchange
        led = list[tuple[SharedHook, Sequence[Tree], list[int]]]()
        apart: dict[int, tuple[Hashable | None, Sequence[Tree]]] = {}  # of each message
        for (message_id, *kind), places in drivers.like_clients(self._columns, sent).items():
            packed = sent[places[0]]
            message = None if packed is None else packed.received
            if message_id not in apart:
                apart[message_id] = taken_apart(message)
            like = exchange, *kind, apart[message_id][0]
            hook = drivers.shared_hook(like, self._columns.round)
            if hook is None:
                leading = LeadingHook(drivers.engine, message, is_watched=drivers.keeps_hooks)
                hook = self._lead(begin(places[0], leading), leading, places[0])
                if hook is None:
                    drivers.do_not_share(exchange)
                    return True
                drivers.keep(hook, like)
            led.append((hook, apart[message_id][1], places))
        for *_, places in led:
            self._turns.pop(places[0], None)
        by_shape = defaultdict[tuple[int, ...], list[tuple[SharedHook, Sequence[Tree], list[int]]]](list)
        for group in led:
            by_shape[tuple([len(request) for request in group[0].requests])].append(group)
        return all(map(self._follow, by_shape.values()))

    def _lead(self, turn: Turn, leading: LeadingHook, place: int) -> SharedHook | None:
        """Run the hook of the first of like clients; return what it does for all, if it does."""
        engine, loop, now_ns = self.drivers.engine, self.loop, self.loop.now_ns
        goes_on_ns = int(self._goes_on_ns[place])
        try:
            loop.now_ns = goes_on_ns  # what a hook reads of the clock
            while (request := leading.go_on(turn, loop)) is not None:
                ends_ns = [goes_on_ns + end_ns for end_ns in request.ends_ns()]
                results = leading.results(request, ends_ns)
                if results is None:
                    results = engine.results_ahead(request, engine.submit_ahead(request, ends_ns))
                turn.done.append(results)
                loop.now_ns = goes_on_ns = ends_ns[-1]
        finally:
            loop.now_ns = now_ns
        return leading.shared(turn, *self._on_link(turn.reply))

    def _follow(self, groups: Sequence[tuple[SharedHook, Sequence[Tree], list[int]]]) -> bool:
        """Let clients ask for the jobs of shared hooks; return whether all ends are instants.

        Args:
            groups: The hooks, which have asked for equally many jobs, each with the trees of the message and
                the places of the dispatches.
        """
        columns, hooks = self._columns, [hook for hook, *_ in groups]
        sizes = [len(places) for *_, places in groups]
        all_places = [place for *_, places in groups for place in places]
        places = np.array(all_places)
        speeds = self.drivers.parts.fleet.speeds(columns.client[places])
        key, counts = self.drivers.host.contexts.keys_of([self.headers[place] for place in all_places])
        dispatches = np.stack([columns.client[places], columns.dispatch[places]], 1).tolist()
        ends_ns = [np.empty((len(places), 0), np.int64)]
        first_job = 1
        for requests in zip(*[hook.requests for hook in hooks], strict=True):
            jobs_asked = range(first_job, first_job + len(requests[0]))
            loads = loads_of_jobs(speeds, key, dispatches, jobs_asked)
            efforts = list(zip(*requests, strict=True))  # by job, of each hook
            by_job = zip(efforts, loads.T, strict=True)
            durations_s = np.stack([durations_s_of(speeds, its, sizes, load) for its, load in by_job], 1)
            passed_ns = np.rint(durations_s.cumsum(axis=1) * 1e9)
            if not (passed_ns < LAST_NS / 2).all():
                return False
            ends_ns.append(self._goes_on_ns[places, None] + passed_ns.astype(np.int64))
            flops = [np.repeat([effort.total.flops for effort in its], sizes) for its in efforts]
            values = [FIT, np.stack(flops, 1).reshape(-1), durations_s.reshape(-1)]
            self._ask(places, ends_ns[-1], values)
            first_job = jobs_asked.stop
        all_ends_ns = np.concatenate(ends_ns, axis=1)
        for (hook, trees, its_places), span in zip(groups, spans_of(sizes), strict=True):
            self._up.number[its_places] = self._up.number_of(hook.frame)
            self._groups.append(_Group(hook, trees, its_places, counts[span], all_ends_ns[span], key))
        return True

    def _start_shared(self) -> None:
        """Start the jobs of shared hooks."""
        for hook, trees, places, counts, ends_ns, key in self._groups:
            clients = self._columns.client[places].tolist()
            due_ns = ends_ns.min(axis=0).tolist()
            replies = hook.start(
                self.drivers.engine, trees, clients, key, counts, due_ns, self._columns.round
            )
            self._started.append((places, replies))

    def _take_replies(self) -> None:
        """Keep the replies of clients that share hooks."""
        for places, shared in self._started:
            for place, reply in zip(places, shared.replies(), strict=True):
                self._replies[place], self._like[place] = reply, shared

    def _run_tile(self, places: Sequence[int]) -> bool:
        """Run the hooks of a tile to their ends, all one request at a time; return whether all ended well.

        Some have gone on before.
        """
        engine, loop, now_ns = self.drivers.engine, self.loop, self.loop.now_ns
        number = 0  # of the step
        try:
            while places:
                submitted = list[tuple[int, JobRequest, list[Promise] | None, list[int]]]()
                for place, goes_on_ns in zip(places, self._goes_on_ns[places].tolist(), strict=True):
                    turn = self._turns[place]
                    loop.now_ns = goes_on_ns  # what a hook reads of the clock
                    request = turn.asked[number] if number < len(turn.asked) else turn.go_on_ahead()
                    if turn.has_notes(number):
                        why = int(self._event[place]), int(self._number[place])
                        self._notes.append((goes_on_ns, *why, place, number))
                    if request is None:
                        self._replies[place], frame = self._on_link(self.drivers.host.travelling(turn))
                        self._up.number[place] = self._up.number_of(frame)
                        continue
                    ends_ns = [goes_on_ns + end_ns for end_ns in request.ends_ns()]
                    if min(ends_ns) < goes_on_ns:
                        return False
                    is_new = number == len(turn.done)
                    promises = engine.submit_ahead(request, ends_ns) if is_new else None
                    submitted.append((place, request, promises, ends_ns))
                self._ask_singly(submitted)
                for place, request, promises, _ in submitted:
                    if promises is not None:
                        self._turns[place].done.append(engine.results_ahead(request, promises))
                places = [place for place, *_ in submitted]
                number += 1
        except (Exception, asyncio.CancelledError):
            return False  # as above
        finally:
            loop.now_ns = now_ns
        return True

    def _ask_singly(self, asked: Sequence[tuple[int, JobRequest, Any, list[int]]]) -> None:
        """Note for which jobs some hooks ask, each with the instants at which they end."""
        for num_jobs in sorted({len(ends_ns) for *_, ends_ns in asked}):
            its = [each for each in asked if len(each[-1]) == num_jobs]
            values = [job_values(timed) for _, request, *_ in its for timed in request.jobs]
            places = np.array([place for place, *_ in its])
            ends_ns = np.array([ends_ns for *_, ends_ns in its], np.int64)
            self._ask(places, ends_ns, [column(each) for each in zip(*values, strict=True)])

    def _ask(self, places: Array, ends_ns: Array, values: Sequence[Column]) -> None:
        """Note for which jobs hooks ask, which go on when the last has ended.

        Args:
            places: Those of the dispatches.
            ends_ns: When the jobs end, int64 ``[hooks, jobs]``.
            values: What the trace has of the jobs, in columns.
        """
        num_jobs, flat_ns = ends_ns.shape[1], ends_ns.reshape(-1)
        of_hooks = places, self._event[places], self._number[places], self._goes_on_ns[places]
        place, event, number, start_ns = [np.repeat(each, num_jobs) for each in of_hooks]
        jobs = np.tile(np.arange(num_jobs), len(places))
        ends = self._events.add(flat_ns, _JOIN, event, number, jobs)
        self._jobs.append(_Jobs(place, event, number, start_ns, flat_ns, ends, values))
        self._event[places], self._number[places] = ends[num_jobs - 1 :: num_jobs], 1
        self._goes_on_ns[places] = ends_ns[:, -1]

    def _on_link(self, reply: Message | None) -> tuple[Message | None, OnLink | None]:
        """Return a reply as the server receives it, and its frame on the link."""
        if reply is None:
            return None, None
        bus, packed = self.drivers.bus, pack(reply)
        if not bus.knows(packed):
            raise TypeError(f"{packed.kind} may not travel")
        return packed.received, bus.on_link(packed, self._columns.exchange, up=True)

    def _arrivals(self, at_ns: Array, places: Array, *, up: bool, by_ns: int) -> Arrivals:
        """Return when the frames of dispatches arrive.

        Args:
            at_ns: When frames leave, of all dispatches.
            places: Those of the dispatches, in the order in which frames leave.
            up: Whether they go to the server.
            by_ns: Those that arrive later are left out.
        """
        link_bytes = (self._up if up else self._down).link_bytes(places)
        clients, dispatches = self._columns.client[places], self._columns.dispatch[places]
        parcels = Departures(at_ns[places], clients, link_bytes, dispatches)
        carrier = cast(TimetableCarrier, self.drivers.carrier)
        arrivals = carrier.arrivals(parcels, up=up, all_at_once=not up, by_ns=by_ns)
        return arrivals._replace(place=places[arrivals.place])

    def _in_order(self, ranks: Array, at_ns: Array, event: Array, number: Array) -> Array:
        """Return the order of what happens at some instants, by some events."""
        order: Array = np.lexsort((number, ranks[event], self._events.class_of(event), at_ns))
        return order

    def _is_certain(self, uploads: Arrivals, by_ns: int) -> bool:
        """Return whether the order of events is certain."""
        if (end_ns := int(self._replied_ns.max())) > by_ns:
            return False
        # Which of two events at one instant came first would depend on when the loop was told of each.
        if not set(self._events.at_ns.tolist()).isdisjoint(uploads.at_ns.tolist()):
            return False
        presence, slowdowns = self.drivers.presence, self.drivers.engine.slowdowns
        if slowdowns is not None and slowdowns.strike_any(
            self._columns.client, self._arrived_ns, self._goes_on_ns
        ):
            return False
        return self.is_quiet_until(end_ns) and (
            presence is None
            or all(
                presence.stays(header.receiver, header.dispatch, at_ns)
                for header, at_ns in zip(self.headers, self._replied_ns.tolist(), strict=True)
            )
        )

    def _record(self, ranks: Array, downloads: Arrivals, leaving: Array, uploads: Arrivals) -> None:
        """Make the records of all that happens."""
        add, places = self._records.add, np.arange(len(self.headers))
        start_ns = np.full(len(places), self._start_ns)
        add(DISPATCH, start_ns, dispatch_values(self._columns), SENT, NO_EVENT, places)
        sent = np.flatnonzero(self._down.number != NO_FRAME)
        self._add_starts(start_ns[sent], sent, SENT, NO_EVENT, sent, up=False)
        self._add_ends(downloads, self._arrived_by[downloads.place], up=False)
        self._add_jobs()
        event = self._event[leaving]
        why = self._events.class_of(event), event, self._number[leaving]
        self._add_starts(self._goes_on_ns[leaving], leaving, *why, up=True)
        self._add_ends(uploads, NO_EVENT, up=True)
        self._records.sort(ranks)
        if self._notes:
            at_ns, event, number = np.array([note[:3] for note in self._notes]).T
            order = self._in_order(ranks, at_ns, event, number).tolist()
            self._notes = [self._notes[place] for place in order]

    def _add_starts(
        self,
        at_ns: Array,
        places: Array,
        event_class: Array | int,
        event: Array | int,
        number: Array,
        *,
        up: bool,
    ) -> None:
        """Add the records of frames that are sent."""
        if len(places):
            frames = self._up if up else self._down
            values = transfer_start_values(self._headers_of(places), up, frames.what(places))
            self._records.add(TRANSFER_START, at_ns, values, event_class, event, number)
            plain_bytes = frames.plain_bytes(places)
            if plain_bytes is not None:
                coded = plain_bytes >= 0
                plain = coded_values(self._headers_of(places[coded]), up, plain_bytes[coded])
                its_class, its_event = (
                    each[coded] if isinstance(each, np.ndarray) else each for each in (event_class, event)
                )
                self._records.add(CODED, at_ns[coded], plain, its_class, its_event, number[coded])

    def _add_ends(self, arrived: Arrivals, event: Array | int, *, up: bool) -> None:
        """Add the records of frames that arrive."""
        if len(arrived.place):
            values = transfer_end_values(self._headers_of(arrived.place), up, Outcome.DELIVERED)
            self._records.add(TRANSFER_END, arrived.at_ns, values, _ORDINARY, event, arrived.number)

    def _add_jobs(self) -> None:
        """Add the records of jobs."""
        if not self._jobs:
            return
        counts = [len(jobs.place) for jobs in self._jobs]
        place, event, number, start_ns, end_ns, ends = (
            np.concatenate(parts) for parts in list(zip(*self._jobs, strict=True))[:-1]
        )
        values = [joined(counts, parts) for parts in zip(*[jobs.values for jobs in self._jobs], strict=True)]
        client, dispatch = self._columns.client[place], self._columns.dispatch[place]
        class_of = self._events.class_of
        self._records.add(JOB_START, start_ns, (client, dispatch, *values), class_of(event), event, number)
        self._records.add(JOB_END, end_ns, (client, dispatch, values[0], DONE), _JOIN, ends, 0)

    def _headers_of(self, places: Array) -> Any:
        """Return the headers of some dispatches, in columns."""
        columns = self._columns
        return replace(columns, receiver=columns.receiver[places], dispatch=columns.dispatch[places])

    # In its time

    def finish_with(self, take: Callable[[Iterable[Arrival]], object]) -> None:
        """Record all in its time; call a function with the replies when the last has come."""
        self._record_before(self._start_ns, BEGUN)
        end_ns, last = int(self._replied_ns.max()), int(self._departures[-1])
        event_class = _ORDINARY
        if self._up.number[last] == NO_FRAME and self._replied_ns[last] == end_ns:
            event_class = EventClass(max(event_class, int(self._events.class_of(self._event[last]))))
        self._end = end_ns, event_class
        self.loop.before = self._before
        self.loop.call_at_ns(end_ns, self._finish, take, event_class=event_class)

    def _before(self, at_ns: int, event_class: int) -> None:
        """Record what happens before an event, unless it is the end, which no other ordinary event meets."""
        if (at_ns, event_class) != self._end or event_class != _ORDINARY:
            self._record_before(at_ns, event_class)

    def _finish(self, take: Callable[[Iterable[Arrival]], object]) -> None:
        self.loop.before = None
        take(self.record_all())

    def record_all(self) -> list[Arrival]:
        """Record all that is left; return the replies in the order of their arrival."""
        self._record_before(LAST_NS, SENT)
        self._enter_frames()
        departures = self._departures.tolist()
        for place in departures:
            if (turn := self._turns.get(place)) is None:
                continue
            turn.forget_ahead()
            if not turn.is_copy:
                self.drivers.host.keep(turn, int(self._goes_on_ns[place]))
        self._take_replies()
        order = self._departures[np.argsort(self._replied_ns[self._departures], kind="stable")].tolist()
        at_ns, replies, like = self._replied_ns.tolist(), self._replies, self._like
        return [Arrival(place, at_ns[place], replies[place], like[place]) for place in order]

    def _record_before(self, at_ns: int, event_class: int) -> None:
        """Record what happens before an instant, or at the instant in a class before this one."""
        self._records.make_before(self.trace, at_ns, event_class)
        class_of, now_ns = self._events.class_of, self.loop.now_ns
        while self._notes and (self._notes[0][0], int(class_of(self._notes[0][1]))) < (at_ns, event_class):
            self.loop.now_ns, _, _, place, number = self._notes.pop(0)
            self._turns[place].write_notes(number)
        self.loop.now_ns = now_ns

    def _enter_frames(self) -> None:
        """Enter all frames in the ledger, in the order of sending."""
        sent = np.flatnonzero(self._down.number != NO_FRAME)
        start_ns = np.full(len(sent), self._start_ns)
        leaving = self._departures[self._up.number[self._departures] != NO_FRAME]
        for places, sent_ns, arrived_ns, up, frames in (
            (sent, start_ns, self._arrived_ns[sent], False, self._down),
            (leaving, self._goes_on_ns[leaving], self._replied_ns[leaving], True, self._up),
        ):
            if len(places):
                what, plain_bytes = frames.what(places), frames.plain_bytes(places)
                self.ledger.delivered(sent_ns, arrived_ns, self._headers_of(places), up, what, plain_bytes)
