"""The clients' side: one host for any number of clients.

Between dispatches only a client's state stays, if it has any. A client serves one dispatch at a time; others
wait in the host. A driver runs its hook, from the arrival of a dispatch until the reply has left.

What a client holds in mirrored fields counts only once the server has merged the reply that went with it
(specification 3.4). Until the next header says so, both versions are kept. What its optimisers hold, under
``training.keep_optimiser``, counts from its reply on, like any field that mirrors nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Protocol, TypeAlias

from fedsim.algorithms.base import Exchange, Local, unmirrored
from fedsim.algorithms.contexts import ClientContext
from fedsim.bus import Delivery, Endpoint, Header
from fedsim.clock import now_ns
from fedsim.engine.kept_optimisers import Keeping
from fedsim.engine.training_config import TrainingConfig
from fedsim.runtime import told_losses
from fedsim.runtime.changeable_settings import Stages
from fedsim.runtime.clients.attacks import attacked
from fedsim.runtime.clients.contexts import Contexts
from fedsim.runtime.clients.held import Held
from fedsim.runtime.clients.hook_steps import HookSteps, Turn, drive
from fedsim.runtime.clients.virtual_driver import VirtualDriver
from fedsim.runtime.hook_results import called, local_result
from fedsim.runtime.message_codecs import CodecsOfRounds, MessageCodecs, spend
from fedsim.runtime.parts import Parts
from fedsim.runtime.past.repeated_hooks import Past
from fedsim.runtime.purity import unchanged
from fedsim.runtime.tasks import Tasks, Work
from fedsim.wire import Message


class Store(Protocol):
    """Where states of clients are kept, of several dispatches, perhaps beyond the end of the process."""

    def load(self, client: int) -> Held | None:
        """Return what was saved last, if anything."""

    def save(self, client: int, held: Held) -> None:
        """Keep this, beside what was saved after earlier dispatches."""

    def rewind(self, client: int, dispatch: int) -> None:
        """Forget what was saved after this dispatch and later ones.

        So a process that ends before the server has a reply replies once more from the state before, and the
        second reply is the first one.
        """


Serve: TypeAlias = Callable[["ClientHost", int, list[Delivery]], Work]
"""Starts a driver of a client's hook for the deliveries that wait; it takes out those that are served."""


@dataclass(eq=False)
class ClientHost:
    """Runs clients' hooks as deliveries arrive.

    Attributes:
        parts: What the run is made of.
        contexts: Makes what hooks are given.
        endpoint: Where replies go.
        tasks: Where clients at work live.
        store: Where what they hold after several dispatches is kept; None where only the newest is needed.
        serve: Starts the drivers of clients.
        past: What the run repeats first; None where it begins anew.
        stages: In a fork, its settings from the beginning on, and from the ends of rounds on.
        ahead: Turns that have begun beforehand, by client and dispatch, with what the client held then.
        sent: Replies by client and dispatch, where somebody compares them.
    """

    parts: Parts
    contexts: Contexts
    endpoint: Endpoint
    tasks: Tasks
    store: Store | None = None
    serve: Serve = VirtualDriver
    past: Past | None = None
    stages: Stages = field(default_factory=dict)
    ahead: dict[tuple[int, int], tuple[Turn, Held | None]] = field(default_factory=dict, init=False)
    sent: dict[tuple[int, int], Message | None] | None = field(default=None, init=False)
    _held: dict[int, Held] = field(default_factory=dict, init=False)
    _waiting: dict[int, list[Delivery]] = field(default_factory=dict, init=False)
    _serving: dict[int, Work] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        if self.past is not None:
            self._held |= self.past.snapshot.held

    @cached_property
    def exchanges(self) -> Mapping[str, Exchange]:
        """The algorithm's exchanges as clients hold them, by name."""
        exchanges = told_losses.at_clients(self.parts.algorithm, self.parts.selector)
        return {exchange.name: exchange for exchange in exchanges}

    @cached_property
    def codecs(self) -> CodecsOfRounds:
        """The codecs of messages."""
        return CodecsOfRounds(self.parts, self.stages)

    @property
    def all_held(self) -> Mapping[int, Held]:
        """What clients hold, by client."""
        return self._held

    def unserved(self) -> Iterator[Delivery]:
        """Yield what clients are at, or what waits for them; perhaps also what they have just replied to."""
        for waiting in self._waiting.values():
            yield from waiting

    @property
    def is_idle(self) -> bool:
        """Whether no client is at work and nothing waits for one."""
        return not (self._waiting or self._serving)

    def take(self, delivery: Delivery) -> None:
        """Let a client reply to a delivery, once it has done with those before."""
        client = delivery.header.receiver
        if client in self._waiting:
            self._waiting[client].append(delivery)
        else:
            self._waiting[client] = waiting = [delivery]
            self._serving[client] = self.serve(self, client, waiting)

    def abandon(self, client: int) -> None:
        """End what a client is at, and forget what waits for it; its state stays as it was before."""
        driver = self._serving.pop(client, None)
        if driver is not None:
            del self._waiting[client]
            driver.cancel()

    def go_back(self) -> None:
        """Give up all work; clients hold what the store has from now on."""
        for client in list(self._serving):
            self.abandon(client)
        self._held.clear()

    def served(self, client: int, waiting: list[Delivery]) -> None:
        """Forget the driver of a client: it has served what waited for the client, or was given up."""
        if self._waiting.get(client) is waiting:  # else the next driver has begun
            del self._waiting[client], self._serving[client]

    def held(self, client: int) -> Held | None:
        """Return what a client has held since its last reply, if anything."""
        if self.store is not None and client not in self._held and (loaded := self.store.load(client)):
            self._held[client] = loaded
        held = self._held.get(client)
        crashes = self.parts.crashes
        if held is not None and crashes is not None and crashes.forgets(client, held.since_ns, now_ns()):
            del self._held[client]
            return None
        return held

    def state_of(self, client: int, newest_merged: int) -> Any:
        """Return a client's state, given its newest merged dispatch; or the one it joins with."""
        held = self.held(client)
        return self.contexts.joined(client) if held is None else held.settled(newest_merged)

    async def states(self, clients: Mapping[int, int]) -> list[Any]:
        """Return states, for the observer; ``clients`` gives the newest merged dispatch of each."""
        return [self.state_of(client, merged) for client, merged in clients.items()]

    def settle_crashes(self) -> None:
        """Forget what clients have lost by crashes: those from now on may be others."""
        for client in list(self._held):
            if (held := self.held(client)) is not None:
                self._held[client] = replace(held, since_ns=max(held.since_ns, now_ns()))

    def can_share(self, exchange: str, client: int, round: int) -> bool:  # noqa: A002
        """Say whether a hook of an exchange may run for several clients: none holds anything.

        Args:
            exchange: The name of the exchange.
            client: One of the clients.
            round: The number of the round.
        """
        known = self.exchanges[exchange]
        return not (
            (self.past is not None and not self.past.is_over)
            or self.codecs.of(round) is not None
            or known.local is None
            or self._is_question(known)
            or self.parts.workload.varies
            or self.parts.training.keep_optimiser
            or self.store is not None
            or self._held
            or self.contexts.joined(client) is not None
        )

    def hold_ahead(self, turn: Turn) -> None:
        """Keep a turn that has begun beforehand until its dispatch comes."""
        header = turn.header
        self.ahead[header.receiver, header.dispatch] = turn, self._held.get(header.receiver)

    def give_up_ahead(self) -> None:
        """Give up turns that have begun beforehand and whose dispatch has never come."""
        for turn, _ in self.ahead.values():
            turn.cancel()
        self.ahead.clear()

    def turn(self, delivery: Delivery) -> Turn:
        """Return the turn of a client that begins with a delivery, or has begun beforehand."""
        header = delivery.header
        client = header.receiver
        if (begun := self.ahead.pop((client, header.dispatch), None)) is not None:
            turn, held_then = begun
            if self.held(client) is held_then:
                return turn
            turn.cancel()  # since then a later dispatch has left another state, or the client has crashed
        if self.past is not None and (past_turn := self.past.turn(delivery)) is not None:
            return past_turn
        if self.store is not None and (held := self.held(client)) and held.dispatch >= header.dispatch:
            # An earlier process has replied, and the reply has not arrived.
            del self._held[client]
            self.store.rewind(client, header.dispatch)
        return self._turn(delivery, self.state_of(client, header.merged), self._keeping_of(client))

    def copied_turn(self, delivery: Delivery) -> Turn:
        """Return the turn of a client for a delivery, on copies of what the client holds."""
        client = delivery.header.receiver
        state = deepcopy(self.state_of(client, delivery.header.merged))
        return self._turn(delivery, state, deepcopy(self._keeping_of(client)), is_copy=True)

    def _turn(
        self, delivery: Delivery, state: Any, keeping: Keeping | None, *, is_copy: bool = False
    ) -> Turn:
        header, message = delivery.header, delivery.message
        exchange, codecs = self.exchanges[header.exchange], self.codecs.of(header.round)
        if codecs is not None:
            message = codecs.read_from_server(message)
        work = partial(self._work, exchange, message)
        turn = Turn(header, state, keeping, work, exchange.local, is_copy=is_copy)
        if codecs is not None:
            turn.received = message
        if codecs is not None and codecs.up.has_feedback and (held := self.held(header.receiver)):
            turn.residuals = held.settled_residuals(header.merged)
        return turn

    def reply(self, turn: Turn) -> Any:
        """Keep what a client holds after its hook has ended, and send its reply; return the departure."""
        turn.forget_ahead()
        sent = self.travelling(turn)
        self.keep(turn, now_ns())
        if self.sent is not None:
            self.sent[turn.header.receiver, turn.header.dispatch] = sent
        return self.endpoint.send(turn.header.reply(), sent)

    def travelling(self, turn: Turn) -> Message | None:
        """Return the reply of a hook that has ended as it travels."""
        reply: Message | None = turn.reply
        codecs = self.codecs.of(turn.header.round)
        if reply is None or codecs is None:
            return reply
        if turn.encoded is None:
            exchange = self.exchanges[turn.header.exchange]
            prefix = f"{exchange.name}/"
            own = {
                path.removeprefix(prefix): tree
                for path, tree in turn.residuals.items()
                if path.startswith(prefix)
            }
            turn.encoded = codecs.encode_reply(reply, turn.received, exchange, turn.header, own)
        return turn.encoded.message

    def keep(self, turn: Turn, ended_ns: int) -> None:
        """Keep what a client holds after its hook has ended, at an instant, ns."""
        if not (turn.is_past or self._is_question(self.exchanges[turn.header.exchange])):
            self._hold(turn, ended_ns)

    @staticmethod
    def _is_question(exchange: Exchange) -> bool:
        """Say whether nothing is trained or kept for an exchange."""
        return exchange.reply is told_losses.ToldLoss

    async def _work(self, exchange: Exchange, message: Message | None, turn: Turn) -> tuple[Any, Any]:
        """Do what a client does for a dispatch; return its state afterwards and its reply."""
        header, state, local = turn.header, turn.state, exchange.local
        codecs = self.codecs.of(header.round)
        attacks = self.parts.attacks  # before the work: in a fork they may be others when it has ended
        if local is None:
            return state, None
        # A copy is compared with the hook itself, which is checked.
        with unchanged(self.parts.verify and not turn.is_copy, f"local_{header.exchange}", state, message):
            training = self.parts.training
            if self.parts.workload.varies and not self._is_question(exchange):
                training = await self._training(header, state, message, local)
            context = self.contexts.replying(turn, training)
            after, reply = await self._reply(local, codecs, context, state, message)
        if attacks is not None and (attack := attacks.of(header.receiver)) is not None:
            names = header.receiver, header.dispatch
            reply = attacked(attack, reply, message, exchange.changes, names)
        return after, reply

    @staticmethod
    async def _reply(
        local: Local, codecs: MessageCodecs | None, context: ClientContext, state: Any, message: Any
    ) -> tuple[Any, Any]:
        """Return a client's state after its hook and its reply, with the time that codecs take."""
        if codecs is not None:
            await spend(context, codecs.down.flops(message)[1])
        after, reply = local_result(local, await called(local, context, state, message))
        if codecs is not None:
            await spend(context, codecs.up.flops(reply)[0])
        return after, reply

    async def _training(self, header: Header, state: Any, message: Any, local: Local) -> TrainingConfig:
        """Return how a client trains for a dispatch, as the workload decides."""
        codecs = self.codecs.of(header.round)

        def hook(context: ClientContext) -> HookSteps:
            return HookSteps(partial(self._reply, local, codecs, context, state, message), local)

        # What the workload awaits, beside its forecasts, is refused under its own name.
        decide, engine = self.parts.workload.training, self.contexts.engine
        forecast = self.contexts.forecast(header, message, hook, codecs)
        steps = HookSteps(partial(called, decide, forecast), decide)
        training: TrainingConfig = await drive(steps, engine.run)
        return training

    def _keeping_of(self, client: int) -> Keeping | None:
        """Return what a client's optimisers go on from, if they do."""
        if not self.parts.training.keep_optimiser:
            return None
        held = self.held(client)
        return Keeping({} if held is None else held.optimisers)

    def _hold(self, turn: Turn, since_ns: int) -> None:
        """Hold what a client has after its reply, since an instant, ns."""
        header, state, keeping, after = turn.header, turn.state, turn.keeping, turn.result[0]
        client, optimisers = header.receiver, {} if keeping is None else keeping.held
        left = {} if turn.encoded is None else turn.encoded.residuals
        if after is not None:
            held = Held(header.dispatch, after, unmirrored(state, after), optimisers)
        else:  # the hook has left the state as it was
            before = self._held.get(client)
            is_settled = before is None or before.is_settled
            if keeping is None and is_settled and not left and not turn.residuals:
                return
            # Which version stood when the hook began is settled, whatever becomes of later replies.
            held = Held(header.dispatch, state, state, optimisers)
        if left or turn.residuals:
            own = {f"{header.exchange}/{path}": tree for path, tree in left.items()}
            held = replace(held, residuals={**turn.residuals, **own}, residuals_before=turn.residuals)
        if self.parts.crashes is not None:
            held = replace(held, since_ns=since_ns)
        self._held[client] = held
        if self.store is not None:
            self.store.save(client, held)


def in_task(host: ClientHost, client: int, waiting: list[Delivery]) -> Work:
    """Serve the deliveries that wait for a client in a task, in real time."""

    async def serve() -> None:
        try:
            while waiting:
                turn = host.turn(waiting[0])
                await drive(turn, host.contexts.engine.run)
                await host.reply(turn)
                del waiting[0]
        finally:
            host.served(client, waiting)

    return host.tasks.start(serve(), name=f"client {client}")
