"""The hooks of the algorithm at the server, and the observer: all that values decide there.

What they decide is told to a journal, if there is one, so that the run can be repeated without values
(:mod:`fedsim.runtime.past`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from fedsim.algorithms.base import Exchange, Reply
from fedsim.algorithms.contexts import ServerContext
from fedsim.errors import MergeError
from fedsim.runtime.evaluation import Accuracy, Observer
from fedsim.runtime.hook_results import called, instructions
from fedsim.runtime.message_codecs import CodecsOfRounds, spend
from fedsim.runtime.parts import Parts
from fedsim.runtime.past.journal import Journal
from fedsim.runtime.purity import unchanged
from fedsim.runtime.server.open_dispatches import Alike
from fedsim.runtime.server.vetting import Vetting, merged
from fedsim.runtime.told_losses import told
from fedsim.wire import Message, Packed

Misfit: TypeAlias = Callable[[Reply, Alike | None], str | None]
"""Returns why a reply cannot be merged, or None; told what it has in common with others."""

Messages: TypeAlias = Mapping[int, Message | Packed | None]
"""What is sent to each client."""


class ServerHooks(Protocol):
    """What values decide at the server."""

    async def instruct(
        self, context: ServerContext, exchange: Exchange, state: Any, whom: Sequence[int]
    ) -> tuple[Any, Messages]:
        """Return the state after the instructions of an exchange, and the messages."""

    def vetting(
        self, context: ServerContext, exchange: Exchange, state: Any
    ) -> AbstractContextManager[Misfit]:
        """Return what vets the replies to an exchange, one after the other."""

    async def merge(
        self, context: ServerContext, exchange: Exchange, state: Any, replies: Sequence[Reply]
    ) -> Any:
        """Return the state after a merge.

        Raises:
            MergeError: It leaves the finite range.
        """

    def losses(self, replies: Sequence[Reply]) -> Mapping[int, float]:
        """Return the losses that replies tell, by client."""

    async def measure(self, state: Any, merged: Sequence[int], round: int) -> Accuracy | None:  # noqa: A002
        """Return what the observer measures; see :meth:`Observer.measure`."""

    async def accuracies(self, state: Any, merged: Sequence[int], round: int) -> Mapping[int, float]:  # noqa: A002
        """Return the accuracies of clients; see :meth:`Observer.accuracies`."""


@dataclass(frozen=True, eq=False)
class LiveHooks:
    """Calls the hooks.

    Attributes:
        parts: What the run is made of.
        codecs: The codecs of messages.
        observer: Measures models.
        journal: Notes what values decide; None if no checkpoints are kept.
    """

    parts: Parts
    codecs: CodecsOfRounds
    observer: Observer
    journal: Journal | None = None

    async def instruct(
        self, context: ServerContext, exchange: Exchange, state: Any, whom: Sequence[int]
    ) -> tuple[Any, Messages]:
        """Call the *instruct* hook of an exchange."""
        with unchanged(self.parts.verify, f"instruct_{exchange.name}", state):
            result = await called(exchange.instruct, context, state, whom)  # type: ignore[arg-type]
            state, messages = instructions(exchange.instruct, result)
        if (codecs := self.codecs.of(context.round)) is not None:
            distinct = {id(message): message for message in messages.values()}.values()
            await spend(context, sum(codecs.down.flops(message)[0] for message in distinct))
        if self.journal is not None:
            self.journal.instructed(context.work, [client for client in whom if client not in messages])
        return state, messages

    @contextmanager
    def vetting(self, context: ServerContext, exchange: Exchange, state: Any) -> Iterator[Misfit]:
        """Vet replies."""
        vetting, reasons = Vetting(self.parts, context, state, exchange), list[str | None]()

        def misfit(reply: Reply, like: Alike | None) -> str | None:
            reasons.append(vetting.misfit(reply, like))
            return reasons[-1]

        yield vetting.misfit if self.journal is None else misfit
        if self.journal is not None:
            self.journal.vetted(reasons)

    async def merge(
        self, context: ServerContext, exchange: Exchange, state: Any, replies: Sequence[Reply]
    ) -> Any:
        """Call the *merge* hook of an exchange."""
        refusal = None
        try:
            await spend(context, sum(self.codecs.decoding_flops(reply.message) for reply in replies))
            return await merged(self.parts, context, state, exchange, replies)
        except MergeError as error:
            refusal = str(error)
            raise
        finally:
            if self.journal is not None:
                self.journal.merged(context.work, refusal)

    def losses(self, replies: Sequence[Reply]) -> Mapping[int, float]:
        """Look for the losses."""
        losses = {reply.client: loss for reply in replies if (loss := told(reply.message)) is not None}
        if self.journal is not None and losses:
            self.journal.told(losses)
        return losses

    async def measure(self, state: Any, merged: Sequence[int], round: int) -> Accuracy | None:  # noqa: A002
        """Let the observer measure."""
        before = self.observer.engine.num_observed
        accuracy = await self.observer.measure(state, merged, round)
        if self.journal is not None:
            self.journal.measured(accuracy, self.observer.engine.num_observed - before)
        return accuracy

    async def accuracies(self, state: Any, merged: Sequence[int], round: int) -> Mapping[int, float]:  # noqa: A002
        """Let the observer measure clients."""
        before = self.observer.engine.num_observed
        found = await self.observer.accuracies(state, merged, round)
        if self.journal is not None:
            self.journal.found(found, self.observer.engine.num_observed - before)
        return found
