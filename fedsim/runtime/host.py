"""The clients' side: one host for any number of clients.

A client becomes a task when something reaches it, and gives it back when its reply has left; only its state,
if it has any, stays. It does one thing at a time: what arrives while it is busy waits.

What a client holds in mirrored fields counts only once the server has merged the reply that went with it
(specification 3.4). Until the next header says so, both versions are kept.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from fedsim.algorithms.base import unmirrored
from fedsim.algorithms.contexts import ClientContext, Initial, Warn, ignored
from fedsim.bus import Delivery, Endpoint, Header
from fedsim.engine.batches import Pass
from fedsim.engine.engine import Engine
from fedsim.engine.jobs import Job
from fedsim.models.flops import Operations
from fedsim.rng import Key
from fedsim.runtime.parts import Parts
from fedsim.runtime.tasks import Tasks
from fedsim.runtime.verify import unchanged


@dataclass(frozen=True, slots=True)
class Held:
    """A client's state between two askings.

    Attributes:
        dispatch: The asking that it came from.
        merged: The state if that reply was merged.
        otherwise: The state if it was not.
    """

    dispatch: int
    merged: Any
    otherwise: Any

    def settled(self, newest_merged: int) -> Any:
        """Return the state, knowing the newest dispatch of this client whose reply was merged."""
        return self.merged if newest_merged >= self.dispatch else self.otherwise


class ObserverContext(ClientContext):
    """A client's context for the observer: its work takes no virtual time and leaves no trace."""

    async def _do(self, job: Job, passes: Mapping[str, Pass] | None = None) -> Any:
        return await self._engine.observe(job)

    async def _submit(self, job: Job, work: Operations, ends_s: float) -> Any:
        return await self._engine.observe(job)


class ClientHost:
    """Runs clients' hooks as deliveries arrive."""

    def __init__(
        self,
        parts: Parts,
        engine: Engine,
        endpoint: Endpoint,
        initial: Initial,
        tasks: Tasks,
        warn: Warn = ignored,
    ) -> None:
        self._parts = parts
        self._engine = engine
        self._endpoint = endpoint
        self._initial = initial
        self._tasks = tasks
        self._warn = warn
        self._key = parts.key
        self._client_key = parts.key.child("client")
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

    def observed(self, client: int, round: int) -> ClientContext:  # noqa: A002
        """Return a client's context in which work costs nothing; its generators are the observer's own."""
        return self._context(ObserverContext, client, -1, round, self._key.child("observer", client, round))

    def state_of(self, client: int, newest_merged: int) -> Any:
        """Return a client's state, given its newest merged dispatch; or the one it joins with."""
        held = self._held.get(client)
        if held is not None:
            return held.settled(newest_merged)
        # Always the same context, so that whoever asks first, and when, makes no difference.
        joining = self._context(ClientContext, client, -1, 0, self._key.child("join", client))
        return self._parts.algorithm.join(joining)

    def _context(
        self,
        kind: type[ClientContext],
        client: int,
        dispatch: int,
        round: int,  # noqa: A002
        key: Key,
    ) -> ClientContext:
        parts = self._parts
        return kind(
            self._engine,
            partial(parts.fleet.device, client),
            parts.training,
            client=client,
            dispatch=dispatch,
            key=key,
            architecture=parts.fleet.model(client),
            round=round,
            initial=self._initial,
            warn=self._warn if dispatch >= 0 else ignored,  # the observer has nothing to tell
        )

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
        key = self._client_key.child(client, header.turn)
        context = self._context(ClientContext, client, header.dispatch, header.round, key)
        state = self.state_of(client, header.merged)
        hook = self._parts.algorithm.hook("local", header.exchange)
        with unchanged(self._parts.verify, f"local_{header.exchange}", state, message):
            after, reply = await hook(context, state, message)
        if after is not None:
            self._held[client] = Held(header.dispatch, after, unmirrored(state, after))
        await self._endpoint.send(header.reply(), reply)
