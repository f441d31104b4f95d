"""Cohorts of which is known beforehand when everything happens.

Clients that train the model that came and send it back (``clients/plain_training.py``), while nothing else
goes on, get in the way of each other on the server's links alone. So when they are asked, it can be worked
out when each frame arrives and each job ends: first all downloads, from these all jobs, from these all
uploads. Everything is then recorded at once, at the instant of the last reply.

A run goes on as if each of these events had had its turn in the loop: the same records in the same order, the
same rows of the ledger, the same jobs. Where that cannot be known, :meth:`KnownCohorts.known` says so and the
events have their turns, as they always have under ``verify``. Tests compare both.
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
from fedsim.engine.engine import FIT, JOB_END, JOB_START, Engine
from fedsim.engine.jobs import Fitted
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

_DELIVERED = OUTCOME_WORDS[Outcome.DELIVERED]
_DOWNLOADED, _TRAINED, _UPLOADED = range(3)
_ORDINARY, _JOIN = int(EventClass.ORDINARY), int(EventClass.JOIN)

_MOST_DOUBLINGS = 4  # of how many cohorts are left out after one that could not be known


def known_cohorts(
    parts: Parts,
    plain: PlainTraining | None,
    host: ClientHost,
    bus: MemoryBus,
    presence: Churn | None,
    engine: Engine,
    trace: Trace,
    table: DispatchTable,
) -> KnownCohorts | None:
    """Return who works such cohorts out, if there can be any.

    Args:
        parts: What the run is made of.
        plain: Says what clients do that train plainly, if any do.
        host: The clients.
        bus: Where frames travel.
        presence: Watches clients that may go away; None where none ever does.
        engine: Who trains.
        trace: Where everything is recorded.
        table: What listens to that.
    """
    may_end_between = parts.until is not None and parts.until.bytes is not None
    if plain is None or may_end_between or not parts.pacing.waits_for_all:
        return None
    if not has_timetable(bus.carrier):
        return None
    return KnownCohorts(
        plain, host, bus, presence, bus.carrier, engine, trace, table, to_ns(parts.client_timeout_s)
    )


@dataclass(eq=False)
class KnownCohorts:
    """Works out such cohorts; made by :func:`known_cohorts`.

    Attributes:
        plain: Says what the clients do.
        host: The clients.
        bus: Where frames travel.
        presence: Watches clients that may go away; None where none ever does.
        carrier: Carries them.
        engine: Who trains.
        trace: Where everything is recorded.
        table: What listens to that.
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
    _in_vain: int = field(default=0, init=False)  # cohorts in a row that could not be known
    _left_out: int = field(default=0, init=False)  # that are not even tried

    def known(self, headers: Sequence[Header], sent: Sequence[Packed | None]) -> KnownCohort | None:
        """Return what comes of dispatches that are sent now; None where that cannot be known.

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
        cohort = self._worked_out(headers, cast("Sequence[Packed]", sent), frames, loop)
        # Where it is mostly in vain, as where clients leave, it is tried more and more seldom.
        self._in_vain = 0 if cohort is not None else min(self._in_vain + 1, _MOST_DOUBLINGS)
        self._left_out = 2**self._in_vain - 1
        return cohort

    def _worked_out(
        self,
        headers: Sequence[Header],
        sent: Sequence[Packed],
        frames: Mapping[int, OnLink],
        loop: VirtualTimeLoop,
    ) -> KnownCohort | None:
        """Work out what comes of dispatches; ``frames`` are those of ``sent``, by identity."""
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
        uploads = self.carrier.arrivals(departures, up=True, all_at_once=False, by_ns=by_ns)
        cohort = KnownCohort(self, headers, start_ns, down, downloads, jobs, ended, due_ns, up, uploads)
        is_certain = cohort.is_certain and loop.is_quiet_until(cohort.end_ns)
        return cohort if is_certain and self._all_stay(cohort) else None

    def _all_stay(self, cohort: KnownCohort) -> bool:
        """Say whether each client is there until its reply has come."""
        presence, headers = self.presence, cohort.headers
        return presence is None or all(
            presence.stays(headers[place].receiver, headers[place].dispatch, at_ns)
            for at_ns, ended in cohort.uploads
            for place in (cohort.ended[number] for number in ended)
        )

    def _replies(
        self, exchange: str, jobs: Mapping[_Place, PlainJob], messages: Sequence[ModelBroadcast]
    ) -> dict[_Place, OnLink]:
        """Return what the frame of each reply is on the link: its length follows from shapes."""
        known, up = dict[tuple[int, int], OnLink](), dict[_Place, OnLink]()
        for place, job in jobs.items():
            model = messages[place].model
            kind = id(model), job.num_samples
            if kind not in known:
                reply = pack(ModelUpdate.of(self.engine.form_of_fitted(model), job.num_samples))
                known[kind] = self.bus.on_link(reply, exchange, up=True)
            up[place] = known[kind]
        return up


@dataclass(eq=False, slots=True)
class KnownCohort:
    """What comes of a cohort's dispatches.

    Attributes:
        of: Who has worked it out.
        headers: Of the dispatches, in the order of sending.
        start_ns: When they are sent.
        down: Their frames, by place.
        downloads: When those arrive.
        jobs: What each client does, in the order in which they begin.
        ended: The places, in the order in which the jobs end.
        due_ns: When the jobs end.
        up: The frames of the replies.
        uploads: When those arrive; places among ``ended``.
    """

    of: KnownCohorts
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
    def is_certain(self) -> bool:
        """Whether all replies come in time, and events of both links never fall on one instant.

        Which of those came first would depend on when the loop was told of them.
        """
        if sum(len(places) for _, places in self.uploads) < len(self.headers):
            return False
        instants = {at_ns for at_ns, _ in self.downloads}
        instants.update(self.due_ns.values())
        return not any(at_ns in instants for at_ns, _ in self.uploads)

    def replies(self) -> list[tuple[_Place, int, Message]]:
        """Record all that happens; return the replies as they come: place, instant in ns, message."""
        of, headers, start_ns, due_ns, jobs = self.of, self.headers, self.start_ns, self.due_ns, self.jobs
        records, begun = list[Record](), of.engine.begun
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
                    started = client, header.dispatch, FIT, job.flops, job.duration_s
                    records.append((at_ns, JOB_START, started))
                    where = partial(place_of, client, header.round)
                    fitted[place] = begun(job.fit, due_ns=due_ns[place], flops=job.flops, place=where)
            elif what == _TRAINED:
                (place,) = places
                header = headers[place]
                client, number = header.receiver, header.dispatch
                records.append((at_ns, JOB_END, (client, number, FIT, "done")))
                records.append((at_ns, TRANSFER_START, (client, number, True, *self.up[place].what)))
            else:
                for place in places:
                    header = headers[place]
                    up_ns[place] = at_ns
                    delivered = header.receiver, header.dispatch, True, _DELIVERED, ""
                    records.append((at_ns, TRANSFER_END, delivered))
                    update = ModelUpdate.of(fitted[place].model, jobs[place].num_samples)
                    replies.append((place, at_ns, update))
        everyone, ledger, table = range(len(headers)), of.bus.ledger, of.table
        of.trace.record_all(records, told=table.listeners)
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
            yield at_ns, _ORDINARY, number, _UPLOADED, [self.ended[place] for place in places]
