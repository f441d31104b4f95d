"""A client process of a run over sockets: hosts its clients until the server says that the run is over."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fedsim.algorithms.contexts import Warn, ignored
from fedsim.bus import Header, Ledger
from fedsim.bus.http.state_versions import Marks, StateVersions
from fedsim.bus.reply_report import MAX_NOTES, Note, Report, in_words
from fedsim.clock import Trace, start_clock
from fedsim.engine.engine import Engine
from fedsim.errors import DecodeError, FedsimError, RunError, UserError
from fedsim.network.fault_settings import ATTACKS
from fedsim.params import unwarned
from fedsim.runtime import state_encoding
from fedsim.runtime.clients.contexts import Contexts
from fedsim.runtime.clients.held import Held
from fedsim.runtime.clients.host import ClientHost, in_task
from fedsim.runtime.parts import Parts
from fedsim.runtime.records.invariants import check_trace
from fedsim.runtime.run import kinds_of, open_engine_of
from fedsim.runtime.sockets.held_clients import HeldClients, HeldEngine
from fedsim.runtime.sockets.serve import QUESTION
from fedsim.runtime.sockets.warm_up import warm_up
from fedsim.runtime.tasks import Tasks

if TYPE_CHECKING:
    from fedsim.bus.http.client import HttpClient
    from fedsim.bus.http.state_folder import StateFolder


class _Work:
    """The jobs of one dispatch; those at the same time count once."""

    __slots__ = ("flops", "num_jobs", "since_ns", "spent_ns", "under_way")

    def __init__(self) -> None:
        self.under_way = 0
        self.since_ns = 0
        self.spent_ns = 0
        self.num_jobs = 0
        self.flops = 0.0


class Reports:
    """Listens to the jobs and hooks of a client process."""

    def __init__(self, trace: Trace) -> None:
        self._work: dict[tuple[int, int], _Work] = {}
        self._notes: dict[int, list[Note]] = {}
        self._left_out: Counter[int] = Counter()
        trace.listen({"job_start": self._began, "job_end": self._ended})

    def warn(self, event: str, *, client: int, **values: Any) -> None:
        """Keep what a reader of the run's log may have to know, for the client's next reply."""
        self._keep(Note("warning", event, values), client)

    def note(self, event: str, *, client: int, **values: Any) -> None:
        """Keep something ordinary, likewise."""
        self._keep(Note("info", event, values), client)

    def take(self, header: Header) -> Report:
        """Return what is to be reported with a reply, and forget it."""
        work = self._work.pop((header.client, header.dispatch), None)
        return Report(
            0 if work is None else work.spent_ns,
            self._notes.pop(header.client, ()),
            self._left_out.pop(header.client, 0),
            *((0, 0.0) if work is None else (work.num_jobs, work.flops)),
        )

    def clear(self) -> None:
        """Forget all."""
        for reported in (self._work, self._notes, self._left_out):
            reported.clear()

    def _keep(self, note: Note, client: int) -> None:
        notes = self._notes.setdefault(client, [])
        if len(notes) < MAX_NOTES:
            notes.append(in_words(note))  # now: a list may change until the reply, and a tensor is large
        else:
            self._left_out[client] += 1  # a hook that notes without end takes up no more

    def _began(self, at_ns: int, client: int, dispatch: int, name: str, flops: float, *_: Any) -> None:
        work = self._work.setdefault((client, dispatch), _Work())
        work.num_jobs += 1
        work.flops += flops
        if not work.under_way:
            work.since_ns = at_ns
        work.under_way += 1

    def _ended(self, at_ns: int, client: int, dispatch: int, *_: Any) -> None:
        work = self._work.get((client, dispatch))
        if work is None:
            return
        work.under_way -= 1
        if not work.under_way:
            work.spent_ns += at_ns - work.since_ns


class MemoryStore:
    """States in memory, as :class:`fedsim.runtime.clients.host.Store` wants them."""

    def __init__(self) -> None:
        self._held: dict[tuple[int, int], Held] = {}
        self.versions = StateVersions(lambda *place: self._held.pop(place))

    def load(self, client: int) -> Held | None:
        """Return what a client holds."""
        newest = self.versions.newest(client)
        return None if newest is None else self._held[client, newest]

    def save(self, client: int, held: Held) -> None:
        """Keep what a client holds after a dispatch."""
        self._held[client, held.dispatch] = held
        self.versions.add(client, held.dispatch)

    def rewind(self, client: int, dispatch: int) -> None:
        """Forget what a client holds after this dispatch and later ones."""
        self.versions.rewind(client, dispatch)


class FolderStore:
    """States in a folder, likewise."""

    def __init__(self, folder: StateFolder, parts: Parts) -> None:
        self._folder, self.versions = folder, folder.versions
        self._classes = state_encoding.classes_of(parts.algorithm)

    def load(self, client: int) -> Held | None:
        """Return what a client holds."""
        data = self._folder.get(client)
        try:
            return None if data is None else state_encoding.decode_held(data, self._classes)
        except DecodeError as error:
            raise UserError(
                f"the state of client {client} in the state folder is none of this run's algorithm "
                f"({error}): give another folder, or remove this one to begin anew"
            ) from None

    def save(self, client: int, held: Held) -> None:
        """Keep what a client holds after a dispatch."""
        self._folder.put(client, held.dispatch, _encoded(client, held))

    def rewind(self, client: int, dispatch: int) -> None:
        """Forget what a client holds after this dispatch and later ones."""
        self.versions.rewind(client, dispatch)


@dataclass(frozen=True, eq=False)
class _Holder:
    """What goes back with the server.

    Attributes:
        hosted: The clients at work.
        versions: The states that there are of them.
        reports: What is reported of them.
    """

    hosted: ClientHost
    versions: StateVersions
    reports: Reports

    def go_back(self, firsts: Mapping[int, int]) -> None:
        """Be as before these dispatches of clients, and before the first of all others; give up all work."""
        self.versions.go_back(firsts)
        self.hosted.go_back()
        self.reports.clear()

    def forget(self, marks: Marks) -> None:
        """Forget states to which no server goes back."""
        self.versions.forget(marks)


async def host(
    parts: Parts,
    client: HttpClient,
    *,
    folder: StateFolder | None = None,
    warn: Warn = ignored,
    emulates: bool = False,
) -> None:
    """Host clients until the run is over; the connection stays as it is.

    Args:
        parts: What the run is made of.
        client: The connection.
        folder: Where states outlive this process; None for no folder.
        warn: Told of warnings of clients.
        emulates: Whether the server keeps the time of clients' devices and links.
    """
    if emulates and folder is not None:
        raise UserError(
            "an emulation ends with its processes, so no state outlives them: leave the folder out"
        )
    start_clock()
    # Of frames the server decides, and devices are real here. In an emulation a crash loses states.
    kept = ATTACKS | {"crash"} if emulates else ATTACKS
    parts = replace(parts, faults=tuple(one for one in parts.faults if one.kind in kept), retry=None)
    if emulates:
        await asyncio.to_thread(warm_up, parts)
    trace = Trace(keep=parts.verify)
    reports = Reports(trace)

    def warned(event: str, **values: Any) -> None:
        reports.warn(event, **values)
        warn(event, **values)

    engine = open_engine_of(HeldEngine if emulates else Engine, parts, trace)
    store = FolderStore(folder, parts) if folder is not None else MemoryStore()
    try:
        tasks = Tasks()
        contexts = Contexts(parts, engine, parts.initial(), warned, reports.note)
        hosted = ClientHost(parts, contexts, client, tasks, None if emulates else store, in_task)

        async def answer(number: int, question: bytes) -> bytes:
            try:
                held = hosted.held(number) if question == QUESTION else None
                # Optimisers stay here: the observer's own always begin anew.
                return b"" if held is None else _encoded(number, _observed(held))
            except FedsimError as error:
                # The observer would take the client for one that has just joined, and nobody here would know.
                tasks.fail(error)
                raise

        client.prober = answer
        client.reporter = reports.take
        with unwarned():
            if isinstance(engine, HeldEngine):
                held = HeldClients(client, kinds_of(parts), hosted, reports.take)
                engine.clients, engine.device_of = held, parts.fleet.device
                hosted.endpoint, client.heard = held, tasks.guarded(held.hear)
            codecs = hosted.codecs.of(0)
            read = None if codecs is None else codecs.read_from_server
            states = _Holder(hosted, store.versions, reports)
            client.feed(tasks.guarded(hosted.take), kinds_of(parts), read, states)
            await tasks.until(client.over())
        if parts.verify:
            check_trace(trace, Ledger())  # of jobs alone: no frame is entered here
    finally:
        engine.close()


def _observed(held: Held) -> Held:
    """Return what the observer sees: neither optimisers nor what codecs have left out."""
    return replace(held, optimisers={}, residuals={}, residuals_before={})


def _encoded(client: int, held: Held) -> bytes:
    try:
        return state_encoding.encode(held)
    except (TypeError, ValueError) as error:
        raise RunError(f"client {client}: {error}") from None
