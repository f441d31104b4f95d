"""Contexts of clients: what their hooks are given, at work and under observation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, cast

from fedsim import plugins
from fedsim.algorithms.contexts import ClientContext, Initial, Warn, ignored
from fedsim.bus import Header
from fedsim.engine.engine import Engine
from fedsim.engine.executors.base import Executor
from fedsim.engine.kept_optimisers import Keeping
from fedsim.engine.training_config import TrainingConfig
from fedsim.network import Links
from fedsim.rng import Key
from fedsim.runtime.clients.forecast import Forecast
from fedsim.runtime.clients.hook_steps import HookSteps, Turn
from fedsim.runtime.clients.leading_hook import LeadingContext
from fedsim.runtime.message_codecs import MessageCodecs
from fedsim.runtime.parts import Parts
from fedsim.wire import Message


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

    def replying(self, turn: Turn, training: TrainingConfig) -> ClientContext:
        """Return the context in which a client works on its reply.

        Args:
            turn: Its work for the dispatch.
            training: How the client trains.
        """
        header, leading = turn.header, turn.leading
        context = self._make(
            header.receiver,
            header.round,
            self.key_of(header),
            training,
            dispatch=header.dispatch,
            keeping=turn.keeping,
            # Only who works on a reply has anything to tell.
            warn=partial(turn.note, self.warn),
            note=partial(turn.note, self.note),
            context_class=ClientContext if leading is None else LeadingContext,
        )
        if leading is not None:
            leading.context = cast(LeadingContext, context)
        return context

    def forecast(
        self,
        header: Header,
        message: Message | None,
        hook: Callable[[ClientContext], HookSteps],
        codecs: MessageCodecs | None = None,
    ) -> Forecast:
        """Return what a client can say of its work for a delivery before it begins.

        Args:
            header: Of the delivery.
            message: What came.
            hook: Gives what the client does with a context.
            codecs: The codecs of messages.
        """
        turn = partial(self.key_of, header)  # not made where nobody asks for it

        def context(training: TrainingConfig) -> ClientContext:
            return self._make(header.receiver, header.round, turn(), training)

        return Forecast(self.parts, self._links, header, message, turn, context, hook, self._null, codecs)

    def key_of(self, header: Header) -> Key:
        """Return what names the generators of the hook for a dispatch."""
        return self._client_key.child(header.receiver, header.turn)

    def keys_of(self, headers: Sequence[Header]) -> tuple[Key, list[tuple[int, int]]]:
        """Return the key of the first of several hooks, and the numbers in the key of each."""
        return self.key_of(headers[0]), [(header.receiver, header.turn) for header in headers]

    @cached_property
    def _links(self) -> Links:
        return self.parts.links()

    @cached_property
    def _null(self) -> Executor:
        """Who gives results without learning."""
        null: Any = plugins.load("fedsim.engine.executors", "null")
        executor: Executor = null(null.Config())
        executor.open(self.engine.resources)
        return executor

    def observed(self, client: int, round: int) -> ClientContext:  # noqa: A002
        """Return a client's context for the observer; its generators are the observer's own.

        Its optimisers always begin anew, and leave nothing behind: whether a client is measured, and how
        often, may not show in what is simulated, nor in what is measured later.
        """
        key = self.parts.key.child("observer", client, round)
        return self._make(client, round, key, self.parts.training)

    def joined(self, client: int) -> Any:
        """Return the state that a client joins with."""
        if not self._remember:
            return None
        # Always the same context, so that whoever asks first, and when, makes no difference.
        context = self._make(client, 0, self.parts.key.child("join", client), self.parts.training)
        state = self.parts.algorithm.join(context)
        self._remember = state is not None
        return state

    def _make(
        self,
        client: int,
        round: int,  # noqa: A002
        key: Key,
        training: TrainingConfig,
        *,
        dispatch: int = -1,
        keeping: Keeping | None = None,
        warn: Warn = ignored,
        note: Warn = ignored,
        context_class: type[ClientContext] = ClientContext,
    ) -> ClientContext:
        parts = self.parts
        return context_class(
            self.engine,
            partial(parts.fleet.device, client),
            training.in_round(round, parts.num_rounds),
            client=client,
            dispatch=dispatch,
            key=key,
            architecture=parts.fleet.model(client),
            round=round,
            initial=self.initial,
            warn=warn,
            note=note,
            keeping=keeping,
        )
