"""The clients' side: one host for any number of clients.

A client has a task from the arrival of a dispatch until its reply has left; between dispatches only its state
stays, if it has any. It serves one dispatch at a time; others wait in the host. What most clients do takes no
task: to train the model that came and send it back (``plain_training.py``).

What a client holds in mirrored fields counts only once the server has merged the reply that went with it
(specification 3.4). Until the next header says so, both versions are kept. What its optimisers hold, under
``training.keep_optimiser``, counts from its reply on, like any field that mirrors nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from fedsim.algorithms.base import Exchange, Local, unmirrored
from fedsim.algorithms.contexts import ClientContext
from fedsim.bus import Delivery, Endpoint, Header
from fedsim.engine.kept_optimisers import Keeping
from fedsim.engine.training_config import TrainingConfig
from fedsim.params import Tree
from fedsim.runtime import told_losses
from fedsim.runtime.clients.contexts import Contexts
from fedsim.runtime.clients.plain_training import PlainTraining, PlainWork
from fedsim.runtime.hook_results import local_result
from fedsim.runtime.parts import Parts
from fedsim.runtime.purity import unchanged
from fedsim.runtime.tasks import Tasks, Work


@dataclass(frozen=True, slots=True)
class Held:
    """A client's state between two dispatches.

    Attributes:
        dispatch: The dispatch that it came from.
        merged: The state if that reply was merged.
        otherwise: The state if it was not.
        optimisers: What the client's optimisers hold in either case, by the keys of
            :class:`fedsim.engine.kept_optimisers.Keeping`.
    """

    dispatch: int
    merged: Any
    otherwise: Any
    optimisers: Mapping[str, Tree] = field(default_factory=dict)

    def settled(self, newest_merged: int) -> Any:
        """Return the state, knowing the newest dispatch of this client whose reply was merged."""
        return self.merged if newest_merged >= self.dispatch else self.otherwise


class Store(Protocol):
    """Where what clients hold outlives the process."""

    def load(self, client: int) -> Held | None:
        """Return what was saved last, if anything."""

    def save(self, client: int, held: Held) -> None:
        """Keep this from now on, as soon as the reply that is sent next is safe, and not before.

        So a process that ends in between replies once more from the state before, and the second reply is
        the first one.
        """


@dataclass(eq=False)
class ClientHost:
    """Runs clients' hooks as deliveries arrive.

    Attributes:
        parts: What the run is made of.
        contexts: Makes what hooks are given.
        endpoint: Where deliveries come from and replies go.
        tasks: Where clients at work live.
        store: Where what they hold outlives the process; without it, nowhere.
        plain_training: Serves deliveries that take no task, if any.
    """

    parts: Parts
    contexts: Contexts
    endpoint: Endpoint
    tasks: Tasks
    store: Store | None = None
    plain_training: PlainTraining | None = field(default=None, init=False)
    _held: dict[int, Held] = field(default_factory=dict, init=False)
    _waiting: dict[int, list[Delivery]] = field(default_factory=dict, init=False)
    _serving: dict[int, Work] = field(default_factory=dict, init=False)

    @cached_property
    def exchanges(self) -> Mapping[str, Exchange]:
        """The algorithm's exchanges as clients hold them, by name."""
        exchanges = told_losses.at_clients(self.parts.algorithm, self.parts.selector)
        return {exchange.name: exchange for exchange in exchanges}

    async def run(self) -> None:
        """Take deliveries for ever."""
        while True:
            self.take(await self.endpoint.receive())

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
            self._start(client, waiting)

    def abandon(self, client: int) -> None:
        """End what a client is at, and forget what waits for it; its state stays as it was before."""
        task = self._serving.pop(client, None)
        if task is not None:
            del self._waiting[client]
            task.cancel()

    def held(self, client: int) -> Held | None:
        """Return what a client has held since its last reply, if anything."""
        if self.store is not None and client not in self._held and (loaded := self.store.load(client)):
            self._held[client] = loaded
        return self._held.get(client)

    def state_of(self, client: int, newest_merged: int) -> Any:
        """Return a client's state, given its newest merged dispatch; or the one it joins with."""
        held = self.held(client)
        return self.contexts.joined(client) if held is None else held.settled(newest_merged)

    async def states(self, clients: Mapping[int, int]) -> list[Any]:
        """Return states, for the observer; ``clients`` gives the newest merged dispatch of each."""
        return [self.state_of(client, merged) for client, merged in clients.items()]

    def _start(self, client: int, waiting: list[Delivery]) -> None:
        """Let a client begin with what waits for it."""
        plain = self.plain_training
        if plain is not None and plain.serves(waiting[0]):
            self._serving[client] = plain.start(client, waiting, self._plain_is_over)
        else:
            self._serving[client] = self.tasks.start(self._serve(client), name=f"client {client}")

    def _plain_is_over(self, work: PlainWork) -> None:
        """Let a client go on with what plain training does not serve, if that waits for it."""
        client = work.client
        if self._waiting[client]:
            serve = self._serve(client)
            self._serving[client] = self.tasks.start(serve, name=f"client {client}", in_place_of=work)
        else:
            self.tasks.remove(work)
            del self._waiting[client], self._serving[client]

    async def _serve(self, client: int) -> None:
        waiting = self._waiting[client]
        try:
            while waiting:
                await self._reply(waiting[0])
                del waiting[0]
        finally:
            # A task that was given up may end after the next one has begun.
            if self._waiting.get(client) is waiting:
                del self._waiting[client], self._serving[client]

    async def _reply(self, delivery: Delivery) -> None:
        header, message = delivery.header, delivery.message
        client = header.receiver
        state, keeping = self.state_of(client, header.merged), self._keeping_of(client)
        exchange = self.exchanges[header.exchange]
        is_question = exchange.reply is told_losses.ToldLoss  # for which nothing is trained or kept
        after, reply, local = state, None, exchange.local
        if local is not None:
            with unchanged(self.parts.verify, f"local_{header.exchange}", state, message):
                training = self.parts.training
                if self.parts.workload.varies and not is_question:
                    training = await self._training(header, state, message, local)
                result = await local(self.contexts.replying(header, training, keeping), state, message)
                after, reply = local_result(local, result)
        if not is_question:
            self._hold(header, state, after, keeping)
        await self.endpoint.send(header.reply(), reply)

    async def _training(self, header: Header, state: Any, message: Any, local: Local) -> TrainingConfig:
        """Return how a client trains for a dispatch, as the workload decides."""

        async def replied(context: ClientContext) -> Any:
            return (await local(context, state, message))[1]

        return await self.parts.workload.training(self.contexts.forecast(header, message, replied))

    def _keeping_of(self, client: int) -> Keeping | None:
        """Return what a client's optimisers go on from, if they do."""
        if not self.parts.training.keep_optimiser:
            return None
        held = self.held(client)
        return Keeping({} if held is None else held.optimisers)

    def _hold(self, header: Header, state: Any, after: Any, keeping: Keeping | None) -> None:
        """Hold what a client has after its reply; None where a hook has left its state as it was."""
        client, optimisers = header.receiver, {} if keeping is None else keeping.held
        if after is not None:
            held = Held(header.dispatch, after, unmirrored(state, after), optimisers)
        else:
            before = self._held.get(client)
            if keeping is None and (before is None or before.merged is before.otherwise):
                return
            # Which version stood when the hook began is settled, whatever becomes of later replies.
            held = Held(header.dispatch, state, state, optimisers)
        self._held[client] = held
        if self.store is not None:
            self.store.save(client, held)
