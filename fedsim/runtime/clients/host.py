"""The clients' side: one host for any number of clients.

A client becomes a task when something reaches it, and gives it back when its reply has left; only its state,
if it has any, stays. It does one thing at a time: what arrives while it is busy waits.

What a client holds in mirrored fields counts only once the server has merged the reply that went with it
(specification 3.4). Until the next header says so, both versions are kept. What its optimisers hold, under
``training.keep_optimiser``, counts from its answer on, like any field that mirrors nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from fedsim.algorithms.base import unmirrored
from fedsim.bus import Delivery, Endpoint, Header
from fedsim.engine.kept_optimisers import Keeping
from fedsim.params import Tree
from fedsim.runtime.clients.contexts import Contexts
from fedsim.runtime.parts import Parts
from fedsim.runtime.purity import unchanged
from fedsim.runtime.tasks import Tasks


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
        """Keep this from now on, as soon as the answer that is sent next is safe, and not before.

        So a process that ends in between answers once more from the state before, and the second answer is
        the first one.
        """


class ClientHost:
    """Runs clients' hooks as deliveries arrive.

    Args:
        parts: What the run is made of.
        contexts: Makes what hooks are given.
        endpoint: Where deliveries come from and replies go.
        tasks: Where clients at work live.
        store: Where what they hold outlives the process; without it, nowhere.
    """

    def __init__(
        self, parts: Parts, contexts: Contexts, endpoint: Endpoint, tasks: Tasks, store: Store | None = None
    ) -> None:
        self._parts = parts
        self._contexts = contexts
        self._endpoint = endpoint
        self._tasks = tasks
        self._store = store
        self._exchanges = {exchange.name: exchange for exchange in parts.algorithm.exchanges}
        self._held: dict[int, Held] = {}
        self._waiting: dict[int, deque[Delivery]] = {}
        self._serving: dict[int, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Take deliveries for ever."""
        while True:
            delivery = await self._endpoint.receive()
            client = delivery.header.receiver
            if client in self._waiting:
                self._waiting[client].append(delivery)
            else:
                self._waiting[client] = deque([delivery])
                self._serving[client] = self._tasks.start(self._serve(client), name=f"client {client}")

    def abandon(self, client: int) -> None:
        """End what a client is at, and forget what waits for it; its state stays as it was before."""
        task = self._serving.pop(client, None)
        if task is not None:
            del self._waiting[client]
            task.cancel()

    def held(self, client: int) -> Held | None:
        """Return what a client has held since its last answer, if anything."""
        if self._store is not None and client not in self._held:
            loaded = self._store.load(client)
            if loaded is not None:
                self._held[client] = loaded
        return self._held.get(client)

    def state_of(self, client: int, newest_merged: int) -> Any:
        """Return a client's state, given its newest merged dispatch; or the one it joins with."""
        held = self.held(client)
        return self._contexts.joined(client) if held is None else held.settled(newest_merged)

    async def states(self, clients: Mapping[int, int]) -> list[Any]:
        """Return states, for the observer; ``clients`` gives the newest merged dispatch of each."""
        return [self.state_of(client, merged) for client, merged in clients.items()]

    async def _serve(self, client: int) -> None:
        waiting = self._waiting[client]
        try:
            while waiting:
                await self._answer(waiting[0].header, waiting[0].message)
                waiting.popleft()
        finally:
            # A task that was given up may end after the next one has begun.
            if self._waiting.get(client) is waiting:
                del self._waiting[client], self._serving[client]

    async def _answer(self, header: Header, message: Any) -> None:
        client = header.receiver
        state, keeping = self.state_of(client, header.merged), self._keeping_of(client)
        after, reply, local = state, None, self._exchanges[header.exchange].local
        if local is not None:
            with unchanged(self._parts.verify, f"local_{header.exchange}", state, message):
                after, reply = await local(self._contexts.answering(header, keeping), state, message)
        self._hold(header, state, after, keeping)
        await self._endpoint.send(header.reply(), reply)

    def _keeping_of(self, client: int) -> Keeping | None:
        """Return what a client's optimisers go on from, if they do."""
        if not self._parts.training.keep_optimiser:
            return None
        held = self.held(client)
        return Keeping({} if held is None else held.optimisers)

    def _hold(self, header: Header, state: Any, after: Any, keeping: Keeping | None) -> None:
        """Hold what a client has after its answer; None where a hook has left its state as it was."""
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
        if self._store is not None:
            self._store.save(client, held)
