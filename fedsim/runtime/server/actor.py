"""The server: sends dispatches, waits as the pacing says, merges the replies.

Every dispatch has a lease (``open_dispatches.py``). A reply that cannot be merged is counted as rejected. A
merge that leaves the finite range is refused (both ``vetting.py``): the state stays, and all its replies
count as rejected. None of this stops a run.
"""

from __future__ import annotations

import asyncio
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedsim.algorithms.base import Exchange, Reply, When
from fedsim.algorithms.common.model_rounds import Weighting, mean_at_edge
from fedsim.algorithms.contexts import Background, Initial, ServerContext
from fedsim.algorithms.hook_work import HookWork
from fedsim.bus import Delivery, Endpoint, Header, Log
from fedsim.clock import RecordKind, Trace, now_ns, wait
from fedsim.clock.loop import to_ns
from fedsim.engine.engine import Engine
from fedsim.errors import InvariantError, MergeError
from fedsim.rng import Key
from fedsim.runtime.budget import Budgets
from fedsim.runtime.changeable_settings import Settings, Stages
from fedsim.runtime.clients.batteries import Meter
from fedsim.runtime.evaluation import Observer
from fedsim.runtime.message_codecs import CodecsOfRounds
from fedsim.runtime.parts import Parts
from fedsim.runtime.past.journal import Journal
from fedsim.runtime.past.repeated_hooks import Past, RepeatedHooks
from fedsim.runtime.records.recorder import Recorder
from fedsim.runtime.server.edges import EDGE_MERGE, EdgeServers
from fedsim.runtime.server.non_finite import non_finite
from fedsim.runtime.server.open_dispatches import RUN_ENDED, CohortDrivers, OpenDispatch, OpenDispatches
from fedsim.runtime.server.selection import Selection
from fedsim.runtime.server.server_hooks import LiveHooks, Messages, ServerHooks
from fedsim.wire import SERVER, Message, ModelUpdate, Packed, pack

REJECT = RecordKind("reject", ("client", "dispatch", "reason"))
PACING_ENDED = "another pacing has begun"
"""Why dispatches are dropped that are open when the pacing changes, in a fork."""

MERGE = RecordKind("merge", ("round", "exchange", "version", "clients", "dispatches"))


@dataclass(eq=False)
class ServerActor:
    """The server's actor. A pacing drives it (:class:`~fedsim.runtime.policies.pacing.base.Rounds`).

    Attributes:
        parts: What the run is made of.
        engine: Who trains.
        endpoint: The server's way to the clients.
        initial: Gives start values.
        observer: Measures models.
        recorder: Makes rows of rounds.
        trace: Where events are recorded.
        log: Where waits and warnings are noted.
        past: What the run repeats first; None where it begins anew, or has gone on from there.
        journal: Notes what values decide; None if no checkpoints are kept.
        keep: Called at the end of each round that is not repeated, with the number of those that have ended.
        stages: In a fork, its settings from the beginning on, and from the ends of rounds on.
        begin_stage: Goes over to settings of a stage; returns those that have changed.
        make_hooks: Makes what calls the algorithm's hooks.
        meter: What knows the batteries of clients, and what they spend; None where nothing depends on it.
        cohorts: Drives cohorts without the loop, where that is possible.
        edges: Aggregators between the server and clients; None where there are none.
        dispatches: The open dispatches.
        state: The algorithm's state at the server.
        merged: The newest dispatch of each client whose reply was merged, -1 where there is none.
        has_used_length: Whether something would have been different if the run had another number of rounds.
        exchanges: The exchanges of a round, in order.
        cohort_size: Replies wanted of a cohort.
    """

    parts: Parts
    engine: Engine
    endpoint: Endpoint
    initial: Initial
    observer: Observer
    recorder: Recorder
    trace: Trace
    log: Log
    past: Past | None = None
    journal: Journal | None = None
    keep: Callable[[int], object] = lambda num_ended: None
    stages: Stages = field(default_factory=dict)
    begin_stage: Callable[[Settings], Settings] = dict
    meter: Meter | None = None
    make_hooks: Callable[..., LiveHooks] = LiveHooks
    cohorts: CohortDrivers | None = field(default=None, init=False)
    edges: EdgeServers | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        num_clients, exchanges = self.parts.data.num_clients, self.parts.algorithm.exchanges
        self._eligible = self.parts.eligible()
        self.state: Any = None
        self.merged = array("i", [-1]) * num_clients
        self.has_used_length = False
        self.exchanges = tuple(one for one in exchanges if one.when == "round")
        self.cohort_size = self.parts.cohort_size
        self._key = self.parts.key.child("server")
        self._clients_key = self.parts.key.child("client")
        self._round = self._num_ended = 0
        self._budgets = self._needed_budgets()
        self._merges = self._merges_before = 0
        self._calls = Counter[str]()  # of hooks, since the last merge or the beginning of the round
        self._hook = asyncio.Lock()
        self._background = Background()
        self._codecs = CodecsOfRounds(self.parts, self.stages)
        self._exchanges = {exchange.name: exchange for exchange in exchanges}
        timeout_s, read = self.parts.client_timeout_s, self._read if self._codecs else None
        self.dispatches = OpenDispatches(self.endpoint, self.trace, num_clients, timeout_s, read)
        self._next_evaluation_ns = to_ns(self.parts.evaluation.every_s or 0.0)
        batteries = self.meter if self.parts.fleet.has_batteries else None
        self._selection = Selection(
            self.parts, self._eligible, self.dispatches, self.trace, self._key, batteries
        )
        self._unmerged = False
        self._rounds_before = 0  # in a server that was started again
        self._rounds_began_ns = -1
        self._live = self.make_hooks(self.parts, self._codecs, self.observer, self.journal)
        self._hooks: ServerHooks = self._live if self.past is None else RepeatedHooks(self.past, self)

    async def run(self) -> None:
        """Open, run all rounds, close."""
        if not self._rounds_before:
            if self.past is None:
                self.state = self.parts.algorithm.start(self._context("start"))
            await self._hold("opening")
            self._merges_before, self._rounds_began_ns = self._merges, now_ns()
        await self._hold_rounds(self._budgets)
        self.recorder.num_rounds = self._round
        self._round += 1
        await self._hold("closing")

    async def _hold_rounds(self, budgets: Budgets | None) -> None:
        """Hold the rounds until the last or a budget, under one pacing after the other."""
        if budgets is None:
            await self.parts.pacing.run(self)
            return
        budgets.start(self._passed_s())
        while not await budgets.hold(self.parts.pacing.run(self)):
            if budgets.are_met:
                await self._stop()
                return
            self.dispatches.discard_all(PACING_ENDED)
            self._background.drop()
            self._rounds_before = self._num_ended

    def _needed_budgets(self) -> Budgets | None:
        """Return what holds the rounds, where they may end before the pacing ends them."""
        held = [*self.stages.values(), {"until": self.parts.until, "pacing": self.parts.pacing}]
        if all(one["until"] is None for one in held) and len({type(one["pacing"]) for one in held}) == 1:
            return None
        budgets = Budgets(self.trace, self.meter)
        budgets.watch(self.parts.until)
        return budgets

    def _passed_s(self) -> float:
        """Return the time since the rounds began, s."""
        return (now_ns() - self._rounds_began_ns) / 1e9

    async def _stop(self) -> None:
        """End the rounds where they are: a budget was met."""
        if self.edges is not None:
            self.edges.stop()
        self.dispatches.discard_all(RUN_ENDED)
        self._background.drop()
        is_measured = self.parts.evaluation.is_on
        if not self.recorder.is_in_round:
            if not is_measured or self.recorder.is_measured:
                return
            self.begin_round()
        self._unmerged = False
        await self._finish(is_measured, is_last=True)

    @property
    def saturations(self) -> tuple[int, int]:
        """Values up and down that were beyond the range of a codec, and have become its largest number."""
        return self._codecs.num_saturated

    def unmerged(self) -> Iterator[tuple[Header, Message]]:
        """Yield the replies that wait for a merge, each with a header of the way up."""
        for dispatch in self.dispatches.all_open():
            reply = dispatch.reply.result() if dispatch.reply.done() else None
            if reply is not None and reply.message is not None:
                yield dispatch.header.reply(), reply.message

    def references(self) -> Iterator[tuple[Header, Message]]:
        """Yield what was sent with open dispatches whose replies may be coded as differences from it."""
        for dispatch in self.dispatches.all_open():
            if dispatch.sent is not None:
                yield dispatch.header, dispatch.sent.received

    def remembered(self) -> dict[str, Any]:
        """Return all that the server has to remember at the end of a round where no past can be repeated."""
        counts = self._round, self._num_ended, self._merges, self._merges_before
        instants = self._rounds_began_ns, self._next_evaluation_ns
        return {
            "server": (self.state, np.array(self.merged), counts, instants, self.saturations),
            "dispatches": self.dispatches.remembered(),
            "selection": self._selection.remembered(),
            "recorder": self.recorder.remembered(),
        }

    def remember(self, values: Mapping[str, Any]) -> None:
        """Go on from what was remembered, with the rounds that are left."""
        self.state, merged, counts, instants, saturations = values["server"]
        self.merged = array("i", merged)
        self._round, self._num_ended, self._merges, self._merges_before = counts
        self._rounds_before = self._num_ended
        self._rounds_began_ns, self._next_evaluation_ns = instants
        self._codecs.count_from(saturations)
        self.dispatches.remember(**values["dispatches"])
        self._selection.remember(**values["selection"])
        self.recorder.remember(**values["recorder"])

    def take(self, delivery: Delivery) -> None:
        """Take a reply."""
        self.dispatches.take(delivery)

    # What a pacing can do

    @property
    def round(self) -> int:
        """The number of the round."""
        return self._round

    @property
    def version(self) -> int:
        """How often the exchanges of rounds have been merged."""
        return self._merges - self._merges_before

    def begin_round(self) -> None:
        """Count a round."""
        self._round += 1
        self._calls.clear()
        self.recorder.begin_round(self._round)

    async def wait_for_candidates(self, until: Sequence[asyncio.Future[Any]] = ()) -> None:
        """Wait until at least one client can be selected, or one of ``until`` is done.

        Where all clients have an open dispatch, there is nobody to wait for: it returns at once.

        Raises:
            RunError: No client will ever be available.
        """
        await self._selection.wait_for_candidates(until, self._round)

    @property
    def num_rounds(self) -> int:
        """How many rounds the pacing has to hold."""
        return self.parts.num_rounds - self._rounds_before

    @property
    def clients(self) -> Sequence[int]:
        """The clients that can take part, ascending."""
        return self._everyone()

    @property
    def key(self) -> Key:
        """The root of the pacing's generators."""
        return self._key.child("pacing")

    async def select(self, count: int, among: Sequence[int] | None = None) -> Sequence[int]:
        """Return so many of the clients that are there and have no open dispatch, or all; ascending.

        Args:
            count: How many are wanted.
            among: Choose from these alone, which can take part, ascending.

        Raises:
            InvariantError: The selector chose somebody twice, or somebody who was no candidate.
        """
        return await self._selection.select(count, self._round, self._ask, among)

    async def dispatch(
        self, exchange: Exchange, cohort: Sequence[int], answered: Sequence[int]
    ) -> Sequence[OpenDispatch]:
        """Send an exchange's instructions to those it concerns; ascending by client.

        Raises:
            InvariantError: The algorithm instructed somebody whom the exchange does not concern.
        """
        whom = self._everyone() if exchange.who == "all" else cohort if exchange.who == "cohort" else answered
        if not whom:
            return []
        messages = await self._instruct(exchange, tuple(whom))
        if self.edges is not None and exchange.when == "round":
            return self.edges.dispatch(self, exchange, messages)
        return self.send(exchange, messages)

    def send(self, exchange: Exchange, messages: Messages) -> list[OpenDispatch]:
        """Send clients messages of an exchange; ascending by client."""
        # A message for many is packed once.
        distinct = {id(message): message for message in messages.values()}
        clients, dispatches = sorted(messages), self.dispatches
        name, number, merged = exchange.name, self._round, self.merged
        headers = [dispatches.header(client, name, number, merged[client]) for client in clients]
        first = {id(messages[header.receiver]): header for header in reversed(headers)}
        packed = {
            key: None if message is None else self._packed(message, first[key])
            for key, message in distinct.items()
        }
        sent = [packed[id(messages[client])] for client in clients]
        if self.cohorts is not None:
            driven = self.cohorts.drive(headers, sent, self._background.num_unstarted)
            if driven is not None:
                return dispatches.send_together(driven, sent, self.version)
        return [
            dispatches.send(header, message, self.version)
            for header, message in zip(headers, sent, strict=True)
        ]

    async def merge(self, exchange: Exchange, dispatches: Sequence[OpenDispatch]) -> Sequence[int]:
        """Merge the replies that are there and close all dispatches; return who was merged, ascending.

        Raises:
            InvariantError: A dispatch that was merged before.
            MergeError: The merge has left the finite range; the state stays, and the replies are rejected.
        """
        of_edges = [dispatch.reply.result() for dispatch in dispatches if dispatch.client < SERVER]
        replies = self._collect(exchange, [one for one in dispatches if one.client >= 0])
        if replies or any(of_edges):
            await self._merge(exchange, [*replies, *filter(None, of_edges)])
        else:
            self._unmerged = True
        return [reply.client for reply in replies]

    def average(
        self, edge: int, exchange: Exchange, dispatches: Sequence[OpenDispatch]
    ) -> tuple[ModelUpdate, float] | None:
        """Close all dispatches; return the mean of the replies that are there, and its weight beside.

        None where there are none, or where their mean has left the finite range: then they are rejected.
        """
        replies = self._collect(exchange, dispatches)
        if not replies:
            return None
        weighting: Weighting = getattr(self.parts.algorithm.config, "weighting", None) or "samples"
        update, weight = mean_at_edge(replies, weighting)
        if (fault := non_finite(update)) is not None:
            for reply in replies:
                self._reject(reply, f"the mean of its edge: {fault}")
            return None
        self._settle(replies)
        self.trace.record(EDGE_MERGE, self._round, exchange.name, edge, *_named(replies))
        return update, weight

    def release(self, dispatch: OpenDispatch) -> None:
        """Let a client that has replied be selected again, before its reply is merged."""
        self.dispatches.release(dispatch)

    def discard(self, dispatches: Sequence[OpenDispatch], cause: str) -> None:
        """Close dispatches and merge nothing of them; each counts as dropped.

        Raises:
            InvariantError: A dispatch that was closed before.
        """
        for dispatch in dispatches:
            if dispatch.client >= 0:  # else it is an edge's, whose clients are done
                self.dispatches.close(dispatch, cause, discarded=True)
        self._background.drop()

    def predicted_s(self, exchange: Exchange, clients: Sequence[int]) -> list[float]:
        """Return how long clients are predicted to take: as long as last, or as they were waited for."""
        return self.dispatches.predicted_s(exchange, clients)

    async def accuracies(self) -> Mapping[int, float]:
        """Return what the observer finds of each client that it measures; the more, the better."""
        return await self._hooks.accuracies(self.state, self.merged, self._round)

    async def end_round(self) -> None:
        """Measure and report.

        Raises:
            InvariantError: The algorithm left background work behind.
        """
        await self._finish(self._is_evaluated())
        self._num_ended += 1
        if self.past is not None:
            if self.past.end_round():
                self._go_on_from(self.past)
        else:
            if self.journal is not None:
                self.journal.end_round()
            self.keep(self._num_ended)
        if (settings := self.stages.get(self._num_ended)) is not None:
            await self._begin_stage(settings)

    # How it is done

    async def _begin_stage(self, settings: Settings) -> None:
        """Go on with other settings; does not return where another pacing begins or a budget is met."""
        parts, every_s, pacing = self.parts, self.parts.evaluation.every_s, type(self.parts.pacing)
        changed = self.begin_stage(settings)
        self.cohort_size = parts.cohort_size
        if parts.evaluation.every_s != every_s:
            self._next_evaluation_ns = now_ns()
        if "client_timeout_s" in changed:
            self.dispatches.set_timeout(parts.client_timeout_s)
        if self._budgets is None:
            return
        if "until" in changed:
            sent = self.recorder.ledger.totals()
            self._budgets.watch(parts.until, sent.sent_up + sent.sent_down)
            self._budgets.start(self._passed_s())
        if type(parts.pacing) is not pacing or self._budgets.are_met:
            await self._budgets.leave()

    def _go_on_from(self, past: Past) -> None:
        """Go on from what was alive at the end of the past, which is over and forgotten."""
        snapshot = past.snapshot
        self.state, self.past, self._hooks = snapshot.state, None, self._live
        self.has_used_length = snapshot.has_used_length
        self._codecs.count_from(snapshot.num_saturated)
        del past.snapshot

    def _packed(self, message: Message | Packed, header: Header) -> Packed:
        """Return a message as it travels, given the header of the first dispatch that carries it."""
        if isinstance(message, Packed):
            return message
        codecs = self._codecs.of(header.round)
        return pack(message) if codecs is None else codecs.pack_for_clients(message, header)

    def _read(self, dispatch: OpenDispatch, reply: Message) -> Message:
        """Return the reply for which a coded one stands."""
        exchange = self._exchanges.get(dispatch.header.exchange)
        if exchange is None:
            return reply
        return self._codecs.read_reply(reply, dispatch.sent, exchange, dispatch.header.round)

    async def _hold(self, when: When) -> None:
        """Hold the exchanges before or after the rounds, with everyone, and measure."""
        exchanges = [one for one in self.parts.algorithm.exchanges if one.when == when]
        evaluation = self.parts.evaluation
        if not exchanges and not (when == "opening" and evaluation.at_start):
            return
        everyone = self._everyone()
        answered = everyone
        self.recorder.begin_round(self._round)
        for exchange in exchanges:
            dispatches = await self.dispatch(exchange, everyone, answered)
            if dispatches:
                await wait([dispatch.reply for dispatch in dispatches])
            try:
                answered = await self.merge(exchange, dispatches)
            except MergeError:
                answered = []
        await self._finish(evaluation.is_on if when == "closing" else evaluation.at_start, is_last=True)

    def _is_evaluated(self) -> bool:
        """Say whether this round, which ends now, is evaluated."""
        evaluation = self.parts.evaluation
        every, every_s = evaluation.rounds_between, evaluation.every_s
        is_time = every_s is not None and now_ns() >= self._next_evaluation_ns
        if every_s is not None and is_time:
            every_ns = max(1, to_ns(every_s))
            self._next_evaluation_ns = every_ns * (now_ns() // every_ns + 1)
        if is_time or (bool(every) and self._round % every == 0):
            return True
        is_last = evaluation.is_on and self._round == self.parts.num_rounds
        self.has_used_length |= is_last
        return is_last

    def _length(self) -> int:
        """Return the number of rounds to the algorithm, and remember that it knows."""
        self.has_used_length = True
        return self.parts.num_rounds

    async def _finish(self, measured: bool, *, is_last: bool = False) -> None:
        """End a row of the record, with a measurement if there is to be one."""
        if self._unmerged:
            # A hook that would have collected it never ran: nobody was there to reply.
            self._background.drop()
        self._unmerged = False
        if self._background:
            raise InvariantError(
                f"round {self._round} ended with background work that no hook collected: "
                f"{', '.join(self._background)}; await server.collect(name) in a later hook"
            )
        accuracy = None
        if measured:
            accuracy = await self._hooks.measure(self.state, self.merged, self._round)
        self.recorder.end_round(accuracy)
        if accuracy is not None and self._budgets is not None and not is_last:
            await self._budgets.measured(accuracy)

    async def _instruct(self, exchange: Exchange[Any, Any, Any, Any], whom: Sequence[int]) -> Messages:
        name = f"instruct_{exchange.name}"
        if exchange.instruct is None:
            return dict.fromkeys(whom)
        async with self._hook:
            self.state, messages = await self._hooks.instruct(
                self._context(name, is_noted=True), exchange, self.state, whom
            )
        if strangers := sorted(messages.keys() - set(whom)):
            raise InvariantError(
                f"{name} instructs the clients {strangers}, whom the exchange does not concern"
            )
        return messages

    async def _merge(self, exchange: Exchange, replies: Sequence[Reply]) -> None:
        of_clients = [reply for reply in replies if reply.client >= 0]
        async with self._hook:
            context = self._context(f"merge_{exchange.name}", is_noted=True)
            try:
                self.state = await self._hooks.merge(context, exchange, self.state, replies)
            except asyncio.CancelledError:  # a budget was met meanwhile
                for reply in of_clients:
                    self._reject(reply, RUN_ENDED)
                raise
            except MergeError as error:
                self.recorder.refused(error)
                for reply in of_clients:  # nothing of it is kept
                    self._reject(reply, str(error))
                self._background.drop()
                raise
        self._merges += 1
        self._calls.clear()
        self._settle(of_clients)
        self._record_merge(exchange, of_clients)

    def _settle(self, replies: Sequence[Reply]) -> None:
        """Take note of replies of clients that are merged, here or at an edge."""
        self._selection.known.record_losses(self._hooks.losses(replies))
        for reply in replies:
            self.merged[reply.client] = max(reply.dispatch, self.merged[reply.client])

    def _record_merge(self, exchange: Exchange, replies: Sequence[Reply]) -> None:
        self.trace.record(MERGE, self._round, exchange.name, self._merges, *_named(replies))

    def _collect(self, exchange: Exchange, dispatches: Sequence[OpenDispatch]) -> list[Reply]:
        """Close dispatches; return the replies that are there and can be merged, ascending by client."""
        replies = []
        version = self.version
        with self._hooks.vetting(self._context("vet"), exchange, self.state) as misfit:
            for dispatch in dispatches:
                self.dispatches.close(dispatch)
                reply = dispatch.reply.result() if dispatch.reply.done() else None
                if reply is None:
                    continue
                if staleness := version - reply.version:  # others were merged since the dispatch
                    discount = self.parts.pacing.discount(staleness)
                    reply = replace(reply, staleness=staleness, discount=discount)
                reason = misfit(reply, dispatch.like)
                if reason is None:
                    self._codecs.count(reply.message)
                    replies.append(reply)
                else:
                    self._reject(reply, reason)
        replies.sort(key=lambda reply: (reply.client, reply.dispatch))
        return replies

    def _reject(self, reply: Reply, reason: str) -> None:
        self.trace.record(REJECT, reply.client, reply.dispatch, reason)

    def _everyone(self) -> Sequence[int]:
        return list(self._eligible.tolist())

    async def _ask(self, question: Exchange, clients: Sequence[int]) -> Sequence[Reply]:
        """Ask clients before a selection; return the replies that come in time, ascending by client.

        They change no state at either side, and are no merge that others could be stale by.
        """
        dispatches = await self.dispatch(question, clients, ())
        await wait([one.reply for one in dispatches], timeout=self.parts.selector.answer_within_s)
        replies = self._collect(question, dispatches)
        if replies:
            self._record_merge(question, replies)
        self._selection.known.record_losses(self._hooks.losses(replies))
        return replies

    def _context(self, hook: str, *, is_noted: bool = False) -> ServerContext:
        """Return what a call of a hook may know and do; a journal notes the work of some hooks."""
        parts = self.parts
        key = self._key.child(hook, self._merges, self._round)
        is_asynchronous = parts.pacing.merge_size(self.cohort_size) is not None
        if is_asynchronous:  # a synchronous round that is repeated repeats its draws
            key = key.child("again", self._calls[hook]) if self._calls[hook] else key
            self._calls[hook] += 1
        return ServerContext(
            self.engine,
            lambda: parts.fleet.server,
            parts.training.in_round(self._round, parts.num_rounds),
            client=SERVER,
            dispatch=-1,
            key=key,
            architecture=parts.fleet.server_model,
            architecture_of=parts.fleet.model,
            round=self._round,
            version=self.version,
            length=self._length,
            num_eligible=len(self._eligible),
            initial=self.initial,
            background=self._background,
            clients_key=self._clients_key,
            aggregation=parts.aggregation,
            work=HookWork() if is_noted and self.journal is not None else None,
            warn=self.log.warning,
            note=self.log.info,
        )


def _named(replies: Sequence[Reply]) -> tuple[list[int], list[int]]:
    """Return clients and dispatches of replies."""
    return [reply.client for reply in replies], [reply.dispatch for reply in replies]
