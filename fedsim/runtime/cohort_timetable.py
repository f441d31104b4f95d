"""The timetable of a cohort: when each of its frames arrives and each of its jobs ends, before any does.

Clients that train the model that came and send it back (``clients/plain_training.py``), while nothing else
goes on, get in the way of each other on the server's links alone. So when they are asked, everything that
follows can be computed at once: first all downloads, from these all jobs, from these all uploads. One event,
at the instant of the last reply, then carries it out.

A run goes on as if each of these events had had its turn in the loop: the same records in the same order, the
same rows of the ledger, the same jobs. Where that is not certain there is no timetable and the events have
their turns, as they always have under ``verify``. Tests compare both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import TypeAlias, cast

from fedsim.bus import Header, MemoryBus
from fedsim.bus.ledger import OUTCOME_WORDS, Outcome
from fedsim.bus.memory import TRANSFER_END, TRANSFER_START, OnLink
from fedsim.clock import EventClass, Trace, VirtualTimeLoop, running_loop
from fedsim.clock.event_trace import Record
from fedsim.clock.loop import to_ns
from fedsim.engine.engine import JOB_END, JOB_START, Engine, called
from fedsim.engine.jobs import Fit, Fitted
from fedsim.engine.pending_fit import can_wait
from fedsim.network import TimetableCarrier, has_timetable
from fedsim.network.base import Arrivals
from fedsim.runtime.clients.host import ClientHost
from fedsim.runtime.clients.interrupted_work import Churn
from fedsim.runtime.clients.plain_training import PlainJob, PlainTraining, place_of
from fedsim.runtime.parts import Parts
from fedsim.runtime.records.dispatch_table import DispatchTable
from fedsim.runtime.server.open_dispatches import DISPATCH
from fedsim.wire import Message, ModelBroadcast, ModelUpdate, Packed, pack

_Place: TypeAlias = int
"""Which of a cohort's dispatches, in the order of sending."""

_FIT = called(Fit)
_DELIVERED = OUTCOME_WORDS[Outcome.DELIVERED]
_DOWNLOADED, _TRAINED, _UPLOADED = range(3)
_ORDINARY, _JOIN = int(EventClass.ORDINARY), int(EventClass.JOIN)

_MOST_DOUBLINGS = 4  # of the number of cohorts that are left out after an attempt in vain


def cohort_timetables(
    parts: Parts,
    plain: PlainTraining | None,
    host: ClientHost,
    bus: MemoryBus,
    presence: Churn | None,
    engine: Engine,
    trace: Trace,
    table: DispatchTable,
) -> CohortTimetables | None:
    """Return what makes timetables in a run; None where no cohort can have one.

    Args:
        parts: What the run is made of.
        plain: Says what clients do that train plainly, if any do.
        host: The clients.
        bus: Where frames travel.
        presence: Watches clients that may go away; None where none ever does.
        engine: Who trains.
        trace: Where everything is recorded.
        table: The table of dispatches, which listens to the trace.
    """
    may_end_between = parts.until is not None and parts.until.bytes is not None
    if plain is None or may_end_between or not parts.pacing.waits_for_all:
        return None
    if not has_timetable(bus.carrier):
        return None
    return CohortTimetables(
        plain, host, bus, presence, bus.carrier, engine, trace, table, to_ns(parts.client_timeout_s)
    )


@dataclass(eq=False)
class CohortTimetables:
    """Makes timetables; made itself by :func:`cohort_timetables`.

    Attributes:
        plain: Says what the clients do.
        host: The clients.
        bus: Where frames travel.
        presence: Watches clients that may go away; None where none ever does.
        carrier: Carries them.
        engine: Who trains.
        trace: Where everything is recorded.
        table: The table of dispatches, which listens to the trace.
        lease_ns: How long the server waits for a reply.
    """

    plain: PlainTraining
    host: ClientHost
    bus: MemoryBus
    presence: Churn | None
    carrier: TimetableCarrier
    engine: Engine
    trace: Trace
    table: DispatchTable
    lease_ns: int
    _in_vain: int = field(default=0, init=False)  # attempts in a row that gave none
    _left_out: int = field(default=0, init=False)  # cohorts for which none is tried

    def of(self, headers: Sequence[Header], sent: Sequence[Packed | None]) -> CohortTimetable | None:
        """Return the timetable of dispatches that are sent now; None where it is not certain.

        Args:
            headers: Theirs, in the order of sending.
            sent: What each carries.
        """
        loop, bus, presence = cast(VirtualTimeLoop, running_loop()), self.bus, self.presence
        is_idle = bus.is_idle and self.host.is_idle and (presence is None or presence.is_idle)
        if not (headers and is_idle and loop.is_quiet_until(loop.now_ns)):
            return None
        exchange = headers[0].exchange
        frames = dict[int, OnLink]()
        for packed in {id(one): one for one in sent}.values():
            if packed is None or not (self.plain.trains(exchange, packed.message) and bus.knows(packed)):
                return None
            frames[id(packed)] = bus.on_link(packed, exchange, up=False)
        if self._left_out:
            self._left_out -= 1
            return None
        timetable = self._made(headers, cast("Sequence[Packed]", sent), frames, loop)
        # Where it is mostly in vain, as where clients leave, it is tried more and more seldom.
        self._in_vain = 0 if timetable is not None else min(self._in_vain + 1, _MOST_DOUBLINGS)
        self._left_out = 2**self._in_vain - 1
        return timetable

    def _made(
        self,
        headers: Sequence[Header],
        sent: Sequence[Packed],
        frames: Mapping[int, OnLink],
        loop: VirtualTimeLoop,
    ) -> CohortTimetable | None:
        """Make a timetable; ``frames`` are those of ``sent``, by identity."""
        start_ns, exchange = loop.now_ns, headers[0].exchange
        messages = cast("list[ModelBroadcast]", [packed.received for packed in sent])
        down = [frames[id(packed)] for packed in sent]
        by_ns = start_ns + self.lease_ns
        departures = [
            (start_ns, header.receiver, frame.link_bytes) for header, frame in zip(headers, down, strict=True)
        ]
        downloads = self.carrier.arrivals(departures, up=False, all_at_once=True, by_ns=by_ns)
        jobs, due_ns = dict[_Place, PlainJob](), dict[_Place, int]()
        for at_ns, places in downloads:
            for place in places:
                jobs[place] = job = self.plain.job(headers[place], messages[place].model)
                if not (0 <= job.duration_s < inf and can_wait(job.fit)):
                    return None
                due_ns[place] = at_ns + round(job.duration_s * 1e9)
        if len(jobs) < len(headers):
            return None
        ended = sorted(jobs, key=due_ns.__getitem__)
        up = self._replies(exchange, jobs, messages)
        departures = [(due_ns[place], headers[place].receiver, up[place].link_bytes) for place in ended]
        arrivals = self.carrier.arrivals(departures, up=True, all_at_once=False, by_ns=by_ns)
        uploads = [(at_ns, [ended[number] for number in numbers]) for at_ns, numbers in arrivals]
        made = CohortTimetable(self, headers, start_ns, down, downloads, jobs, ended, due_ns, up, uploads)
        is_certain = made.is_complete and made.is_in_order and loop.is_quiet_until(made.end_ns)
        return made if is_certain and self._all_stay(made) else None

    def _all_stay(self, timetable: CohortTimetable) -> bool:
        """Say whether each client is there until its reply has come."""
        presence, headers = self.presence, timetable.headers
        return presence is None or all(
            presence.stays(headers[place].receiver, headers[place].dispatch, at_ns)
            for at_ns, places in timetable.uploads
            for place in places
        )

    def _replies(
        self, exchange: str, jobs: Mapping[_Place, PlainJob], messages: Sequence[ModelBroadcast]
    ) -> dict[_Place, OnLink]:
        """Return what the frame of each reply is on the link: its length follows from shapes."""
        kinds, up = dict[tuple[int, int], OnLink](), dict[_Place, OnLink]()
        for place, job in jobs.items():
            model = messages[place].model
            kind = id(model), job.num_samples
            if kind not in kinds:
                reply = pack(ModelUpdate.of(self.engine.form_of_fitted(model), job.num_samples))
                kinds[kind] = self.bus.on_link(reply, exchange, up=True)
            up[place] = kinds[kind]
        return up


@dataclass(eq=False, slots=True)
class CohortTimetable:
    """The timetable of one cohort.

    Attributes:
        made_by: What has made it.
        headers: Of the dispatches, in the order of sending.
        start_ns: When they are sent.
        down: Their frames, by place.
        downloads: When those arrive.
        jobs: What each client does, in the order in which they begin.
        ended: The places, in the order in which the jobs end.
        due_ns: When the jobs end.
        up: The frames of the replies.
        uploads: When those arrive.
    """

    made_by: CohortTimetables
    headers: Sequence[Header]
    start_ns: int
    down: Sequence[OnLink]
    downloads: Arrivals
    jobs: Mapping[_Place, PlainJob]
    ended: Sequence[_Place]
    due_ns: Mapping[_Place, int]
    up: Mapping[_Place, OnLink]
    uploads: Arrivals

    @property
    def end_ns(self) -> int:
        """When the last reply comes."""
        return self.uploads[-1][0]

    @property
    def is_complete(self) -> bool:
        """Whether every reply comes before its lease ends."""
        return sum(len(places) for _, places in self.uploads) == len(self.headers)

    @property
    def is_in_order(self) -> bool:
        """Whether no upload arrives at the instant of a download or of the end of a job.

        Which event came first would depend on when the loop was told of each.
        """
        instants = {at_ns for at_ns, _ in self.downloads}
        instants.update(self.due_ns.values())
        return not any(at_ns in instants for at_ns, _ in self.uploads)

    def carry_out(self) -> list[tuple[_Place, int, Message]]:
        """Begin the jobs and record everything; return the replies: place, instant in ns, message."""
        by, headers, start_ns, due_ns = self.made_by, self.headers, self.start_ns, self.due_ns
        records, jobs, begun = list[Record](), self.jobs, by.engine.begun
        for header, frame in zip(headers, self.down, strict=True):
            client, number = header.receiver, header.dispatch
            asked = client, number, header.round, header.exchange, header.turn
            records.append((start_ns, DISPATCH, asked))
            records.append((start_ns, TRANSFER_START, (client, number, False, *frame.what)))
        fitted, replies = dict[_Place, Fitted](), list[tuple[_Place, int, Message]]()
        down_ns, up_ns = dict[_Place, int](), dict[_Place, int]()
        for at_ns, _, _, what, places in sorted(self._events()):
            if what == _DOWNLOADED:
                for place in places:
                    header = headers[place]
                    down_ns[place] = at_ns
                    delivered = header.receiver, header.dispatch, False, _DELIVERED, ""
                    records.append((at_ns, TRANSFER_END, delivered))
                for place in places:
                    header, job = headers[place], jobs[place]
                    client = header.receiver
                    started = client, header.dispatch, _FIT, job.flops, job.duration_s
                    records.append((at_ns, JOB_START, started))
                    where = partial(place_of, client, header.round)
                    fitted[place] = begun(job.fit, due_ns=due_ns[place], flops=job.flops, place=where)
            elif what == _TRAINED:
                (place,) = places
                header = headers[place]
                client, number = header.receiver, header.dispatch
                records.append((at_ns, JOB_END, (client, number, _FIT, "done")))
                records.append((at_ns, TRANSFER_START, (client, number, True, *self.up[place].what)))
            else:
                for place in places:
                    header = headers[place]
                    up_ns[place] = at_ns
                    delivered = header.receiver, header.dispatch, True, _DELIVERED, ""
                    records.append((at_ns, TRANSFER_END, delivered))
                    update = ModelUpdate.of(fitted[place].model, jobs[place].num_samples)
                    replies.append((place, at_ns, update))
        everyone, ledger, table = range(len(headers)), by.bus.ledger, by.table
        by.trace.record_all(records, told=table.listeners)
        table.replied(start_ns, headers, [(down_ns[one], due_ns[one], up_ns[one]) for one in everyone])
        ledger.delivered([(start_ns, down_ns[one], headers[one], self.down[one].what) for one in everyone])
        ledger.delivered(
            [(due_ns[one], up_ns[one], headers[one], self.up[one].what) for one in self.ended], up=True
        )
        return replies

    def _events(self) -> Iterator[tuple[int, int, int, int, Sequence[_Place]]]:
        """Yield all events: when, class, place within the class, what happens and to whom."""
        for number, (at_ns, places) in enumerate(self.downloads):
            yield at_ns, _ORDINARY, number, _DOWNLOADED, places
        for number, place in enumerate(self.ended):
            yield self.due_ns[place], _JOIN, number, _TRAINED, (place,)
        for number, (at_ns, places) in enumerate(self.uploads):
            yield at_ns, _ORDINARY, number, _UPLOADED, places
