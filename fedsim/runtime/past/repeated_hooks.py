"""The past of a run, repeated without values.

A run goes on from a snapshot by being repeated from its beginning, as far as the snapshot: the loop, the
pacing, the selector, the network and the records are those of any run. But no hook of the algorithm is called
and nothing is trained: what clients did follows from the trace (``past_work.py``), and what values decided at
the server from the journal. Work that was under way when the snapshot was taken is begun for real, at its
instant, from what the snapshot has.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from fedsim.algorithms.base import Exchange, Reply
from fedsim.algorithms.contexts import Initial, ServerContext
from fedsim.algorithms.hook_work import repeat
from fedsim.bus import Delivery
from fedsim.engine.confusion import Confusion
from fedsim.errors import MergeError, RunError
from fedsim.runtime.evaluation import Accuracy
from fedsim.runtime.past import journal
from fedsim.runtime.past.past_work import PastTurn, PastWork, past_request
from fedsim.runtime.past.snapshot import Snapshot
from fedsim.runtime.server.open_dispatches import Alike
from fedsim.runtime.state_encoding import decode
from fedsim.wire import SERVER, FrameSize, Kinds, Message, Packed, SizedPacked

if TYPE_CHECKING:
    from fedsim.runtime.server.actor import ServerActor
    from fedsim.runtime.server.server_hooks import Messages, Misfit


class Past:
    """What a run repeats before it goes on.

    Args:
        load: Gives what was alive at the end of the past, given what makes start models.
        work: What clients did.
        entries: Those of the journal, in order.
        num_rounds: Rounds that had ended.
        kinds: The kinds of message that may travel.
        end: Called when the past is over.

    Attributes:
        snapshot: What was alive, once the run begins.
    """

    snapshot: Snapshot

    def __init__(
        self,
        load: Callable[[Initial], Snapshot],
        work: PastWork,
        entries: Sequence[journal.Entry],
        num_rounds: int,
        kinds: Kinds,
        end: Callable[[], object] = lambda: None,
    ) -> None:
        self._load = load
        self._work = work
        self._entries = deque(entries)
        self._left = num_rounds
        self._kinds = kinds
        self._end = end
        self._packed: dict[FrameSize, SizedPacked] = {}

    def begin(self, initial: Initial) -> None:
        """Load what was alive; the run begins."""
        self.snapshot = self._load(initial)

    @property
    def is_over(self) -> bool:
        """Whether the run goes on by itself now."""
        return self._left == 0

    def end_round(self) -> bool:
        """Count the end of a round; return whether it is the last of the past."""
        self._left -= 1
        if self._left:
            return False
        if self._entries:
            raise differs(f"{len(self._entries)} entries of the journal are left")
        self._end()
        del self._work, self._load, self._end, self._packed  # which may be large
        return True

    def entry(self, word: str) -> list[Any]:
        """Return the next entry of the journal, which starts with this word, without it."""
        if not self.is_next(word):
            raise differs(f"{word!r} comes where the journal has {[*self._entries][:1]}")
        return self._entries.popleft()[1:]

    def is_next(self, word: str) -> bool:
        """Whether the next entry of the journal starts with this word."""
        return bool(self._entries) and self._entries[0][0] == word

    def turn(self, delivery: Delivery) -> PastTurn | None:
        """Return the turn of a client that has ended its work on a delivery in the past; else None."""
        header = delivery.header
        client, number = header.receiver, header.dispatch
        if self.is_over or number in self.snapshot.down.get(client, {}):
            return None
        done = self._work.of(client, number)
        packed = None if done.up is None else self._sized(done.up, self.snapshot.up, client, number)
        return PastTurn(header, done.requests, packed)

    def sent(self, client: int, number: int) -> Packed | None:
        """Return what was sent with a dispatch."""
        down, snapshot = self._work.of(client, number).down, self.snapshot
        if down is None:
            return None
        alive = snapshot.down if number in snapshot.down.get(client, {}) else snapshot.sent
        return self._sized(down, alive, client, number)

    def _sized(
        self, size: FrameSize, alive: Mapping[int, Mapping[int, Any]], client: int, number: int
    ) -> SizedPacked:
        plan = self._kinds[size.kind]
        received: Message | None = alive.get(client, {}).get(number)
        if received is not None:
            return SizedPacked(size, plan, received)
        if (packed := self._packed.get(size)) is None:
            packed = self._packed[size] = SizedPacked(size, plan)
        return packed


@dataclass(frozen=True, eq=False)
class RepeatedHooks:
    """Answers in the place of the server's hooks, from the journal.

    Attributes:
        past: The past.
        actor: The server.
    """

    past: Past
    actor: ServerActor

    async def instruct(
        self, context: ServerContext, exchange: Exchange, state: Any, whom: Sequence[int]
    ) -> tuple[Any, Messages]:
        """Let the time of an *instruct* hook pass; return what was sent."""
        steps, omitted = self.past.entry(journal.INSTRUCTED)
        await self._pass(context, steps)
        number_of, left_out = self.actor.dispatches.next_number, set(omitted)
        asked = [client for client in whom if client not in left_out]
        return state, {client: self.past.sent(client, number_of(client)) for client in asked}

    @contextmanager
    def vetting(self, context: ServerContext, exchange: Exchange, state: Any) -> Iterator[Misfit]:
        """Repeat verdicts."""
        (reasons,) = self.past.entry(journal.VETTED)
        places = iter(range(2**31))

        def misfit(reply: Reply, like: Alike | None) -> str | None:
            reason: str | None = reasons.get(next(places))
            return reason

        yield misfit

    async def merge(
        self, context: ServerContext, exchange: Exchange, state: Any, replies: Sequence[Reply]
    ) -> Any:
        """Let the time of a *merge* hook pass."""
        steps, refusal = self.past.entry(journal.MERGED)
        await self._pass(context, steps)
        if refusal is not None:
            raise MergeError(refusal)
        return state

    def losses(self, replies: Sequence[Reply]) -> Mapping[int, float]:
        """Return what was told."""
        told: dict[int, float] = self.past.entry(journal.TOLD)[0] if self.past.is_next(journal.TOLD) else {}
        return told

    async def measure(self, state: Any, merged: Sequence[int], round: int) -> Accuracy | None:  # noqa: A002
        """Return what was measured."""
        packed, num_observed = self.past.entry(journal.MEASURED)
        await self._observe(num_observed)
        accuracy: Accuracy | None = decode(packed, (Accuracy, Confusion))
        if accuracy is not None:
            self.actor.observer.note(accuracy, round)
        return accuracy

    async def accuracies(self, state: Any, merged: Sequence[int], round: int) -> Mapping[int, float]:  # noqa: A002
        """Return what was found."""
        found, num_observed = self.past.entry(journal.FOUND)
        await self._observe(num_observed)
        accuracies: Mapping[int, float] = found
        return accuracies

    async def _observe(self, times: int) -> None:
        for _ in range(times):
            await self.actor.engine.wait_as_observed()

    async def _pass(self, context: ServerContext, steps: list[Any]) -> None:
        request = partial(past_request, SERVER, -1, context.round)
        await repeat(steps, self.actor.engine, context, request)


def differs(how: str) -> RunError:
    """Return the error of a past that cannot be repeated."""
    return RunError(
        f"the run cannot be repeated as far as its checkpoint: {how}. Perhaps the data or a plugin is "
        "another one now: bring the old one back, or begin the run anew"
    )
