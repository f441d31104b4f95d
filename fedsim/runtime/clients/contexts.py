"""Contexts of clients: what their hooks are given, at work and under observation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, TypeVar

from fedsim import plugins
from fedsim.algorithms.contexts import ClientContext, Initial, Warn, ignored
from fedsim.bus import Header
from fedsim.engine.cost import FitWork
from fedsim.engine.engine import Engine
from fedsim.engine.executors.base import Executor
from fedsim.engine.jobs import Job
from fedsim.engine.kept_optimisers import Keeping
from fedsim.engine.training_config import TrainingConfig
from fedsim.models.flops import Operations
from fedsim.network import Links
from fedsim.rng import Key
from fedsim.runtime.clients.forecast import Forecast, ForecastContext
from fedsim.runtime.parts import Parts
from fedsim.wire import Message

T = TypeVar("T", bound=ClientContext)


class ObserverContext(ClientContext):
    """A client's context for the observer: its work takes no virtual time and leaves no trace.

    Its optimisers always begin anew, and leave nothing behind: a measurement is no part of what is simulated,
    so it may not change what a client holds; and whether a client is measured, and how often, may not show in
    what is measured later.
    """

    def _do(self, job: Job, fit_work: FitWork | None = None) -> Coroutine[Any, Any, Any]:
        return self._engine.observe(job)

    def _submit(
        self, job: Job, work: Operations, takes_s: float, after_s: float = 0.0
    ) -> Coroutine[Any, Any, Any]:
        return self._engine.observe(job)


@dataclass(eq=False)
class Contexts:
    """Makes contexts of clients.

    Attributes:
        parts: What the run is made of.
        engine: Who does the work.
        initial: Start values.
        warn: Where clients' warnings go while they work on a reply.
        note: Where what else they note goes.
    """

    parts: Parts
    engine: Engine
    initial: Initial
    warn: Warn = ignored
    note: Warn = ignored
    _remember: bool = field(default=True, init=False)  # until a client joins with nothing: then all do

    @cached_property
    def _client_key(self) -> Key:
        return self.parts.key.child("client")

    def replying(
        self, header: Header, training: TrainingConfig, keeping: Keeping | None = None
    ) -> ClientContext:
        """Return the context in which a client works on its reply.

        Args:
            header: Of the delivery.
            training: How the client trains.
            keeping: What its optimisers go on from.
        """
        key = self._key_of(header)
        return self._make(
            ClientContext, header.receiver, header.dispatch, header.round, key, training, keeping
        )

    def forecast(
        self,
        header: Header,
        message: Message | None,
        local: Callable[[ClientContext], Awaitable[Message | None]],
    ) -> Forecast:
        """Return what a client can say of its work for a delivery before it begins.

        Args:
            header: Of the delivery.
            message: What came.
            local: What the client does with a context; returns its reply.
        """
        turn = partial(self._key_of, header)  # not made where nobody asks for it

        def context(training: TrainingConfig) -> ForecastContext:
            made = self._make(ForecastContext, header.receiver, -1, header.round, turn(), training)
            made.instead = self._null
            return made

        return Forecast(self.parts, self._links, header, message, turn, context, local)

    def _key_of(self, header: Header) -> Key:
        return self._client_key.child(header.receiver, header.turn)

    @cached_property
    def _links(self) -> Links:
        return self.parts.fleet.links()

    @cached_property
    def _null(self) -> Executor:
        """Who gives results without learning."""
        null: Any = plugins.load("fedsim.engine.executors", "null")
        executor: Executor = null(null.Config())
        executor.open(self.engine.resources)
        return executor

    def observed(self, client: int, round: int) -> ClientContext:  # noqa: A002
        """Return a client's context in which work costs nothing; its generators are the observer's own."""
        key = self.parts.key.child("observer", client, round)
        return self._make(ObserverContext, client, -1, round, key, self.parts.training)

    def joined(self, client: int) -> Any:
        """Return the state that a client joins with."""
        if not self._remember:
            return None
        # Always the same context, so that whoever asks first, and when, makes no difference.
        key = self.parts.key.child("join", client)
        context = self._make(ClientContext, client, -1, 0, key, self.parts.training)
        state = self.parts.algorithm.join(context)
        self._remember = state is not None
        return state

    def _make(
        self,
        kind: type[T],
        client: int,
        dispatch: int,
        round: int,  # noqa: A002
        key: Key,
        training: TrainingConfig,
        keeping: Keeping | None = None,
    ) -> T:
        parts = self.parts
        return kind(
            self.engine,
            partial(parts.fleet.device, client),
            training.in_round(round, parts.num_rounds),
            client=client,
            dispatch=dispatch,
            key=key,
            architecture=parts.fleet.model(client),
            round=round,
            initial=self.initial,
            # Only who works on a reply has anything to tell.
            warn=partial(self.warn, client=client) if dispatch >= 0 else ignored,
            note=partial(self.note, client=client) if dispatch >= 0 else ignored,
            keeping=keeping,
        )
