"""What the asynchronous pacings share: clients kept at work, and replies merged as they come.

A fixed number of dispatches is kept open. When a reply comes, its client is free again, before the reply is
merged; so a merge may hold two replies of one client. What happens at one instant counts as one: all replies
that come then are in before any of them is merged, and the dispatches that they leave free are sent after
those merges, with the newest version.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from math import inf
from typing import Annotated, Any, TypeVar

from pydantic import Field

from fedsim.algorithms.base import Exchange
from fedsim.clock import end_of_instant, running_loop
from fedsim.errors import MergeError, RunError
from fedsim.ranges import Clients
from fedsim.runtime.policies.pacing.base import Rounds, numbers
from fedsim.runtime.policies.pacing.overlapping import Overlapping, OverlappingConfig
from fedsim.runtime.server.open_dispatches import RUN_ENDED, OpenDispatch

MAX_IN_VAIN = 100
"""Dispatches in a row that may end without a reply, for each one that is open at once, and selections in a
row that may lead to no dispatch while none is open; then the run ends."""


class AsynchronousConfig(OverlappingConfig):
    """How many clients are at work, and what stale replies count."""

    concurrency: Clients
    """Dispatches that are open at once: for each one that ends another is sent."""
    max_staleness: Annotated[int, Field(ge=0, le=10**9)] | None = None
    """Replies that are staler are dropped; none if left out."""


A = TypeVar("A", bound=AsynchronousConfig)


class Asynchronous(Overlapping[A]):
    """Keeps clients at work and merges whenever enough have replied."""

    may_change = True

    @property
    @abstractmethod
    def merges_per_round(self) -> int | None:
        """Merges that make up a round; None for as many as replies are wanted in one."""

    async def run(self, rounds: Rounds) -> None:
        """Run all rounds."""
        (exchange,) = rounds.exchanges
        work = _Work(self, rounds, exchange)
        for _ in numbers(rounds):
            rounds.begin_round()
            size = self.merge_size(rounds.cohort_size) or 1
            for _ in range(self.merges_per_round or rounds.cohort_size):
                replies = await work.replies(size)
                with suppress(MergeError):  # the record has it; the next merge begins from the state before
                    await rounds.merge(exchange, replies)
            await rounds.end_round()
        work.discard(RUN_ENDED)


class _Work:
    """The open dispatches of a run, and the replies that wait for their merge."""

    def __init__(self, pacing: Asynchronous[Any], rounds: Rounds, exchange: Exchange) -> None:
        self._pacing = pacing
        self._rounds = rounds
        self._exchange = exchange
        self._open: dict[tuple[int, int], OpenDispatch] = {}
        self._ended: list[OpenDispatch] = []  # not looked at yet
        self._one_has_ended = running_loop().create_future()
        self._replied: list[OpenDispatch] = []  # in the order of arrival, then of clients
        self._in_vain = 0

    async def replies(self, count: int) -> Sequence[OpenDispatch]:
        """Wait for so many replies that are fresh enough, and return them; keep clients at work meanwhile."""
        waiting, self._replied = self._replied, []
        self._keep(waiting)  # merges since then have made them staler
        while len(self._replied) < count:
            await self._fill()
            await self._arrive()
        taken, self._replied = self._replied[:count], self._replied[count:]
        return taken

    def discard(self, cause: str) -> None:
        """Close what is left."""
        self._rounds.discard([*self._replied, *self._ended, *self._open.values()], cause)

    async def _fill(self) -> None:
        """Ask as many clients as are missing, as they become available, until a dispatch ends."""
        in_vain = 0
        while (missing := self._pacing.config.concurrency - len(self._open)) > 0 and not self._ended:
            await self._rounds.wait_for_candidates([self._one_has_ended] if self._open else [])
            cohort = [] if self._ended else await self._rounds.select(missing)
            dispatches = await self._rounds.dispatch(self._exchange, cohort, cohort)
            if not dispatches:
                if self._open or self._ended:
                    break  # all are at work, or one has ended
                in_vain += 1
                if in_vain > MAX_IN_VAIN:
                    raise RunError(
                        f"{in_vain} selections in a row led to no dispatch, though clients were there: give "
                        "them more time to answer what the selector asks, or choose another selector"
                    )
            for dispatch in dispatches:
                self._open[dispatch.client, dispatch.header.dispatch] = dispatch
                dispatch.reply.add_done_callback(partial(self._end, dispatch))

    def _end(self, dispatch: OpenDispatch, reply: object) -> None:
        del self._open[dispatch.client, dispatch.header.dispatch]
        self._ended.append(dispatch)
        if not self._one_has_ended.done():
            self._one_has_ended.set_result(None)

    async def _arrive(self) -> None:
        """Wait until a dispatch ends, and take it with all others that end at the same instant."""
        await self._one_has_ended
        await end_of_instant()
        ended, self._ended = self._ended, []
        self._one_has_ended = running_loop().create_future()
        ended.sort(key=lambda dispatch: (dispatch.client, dispatch.header.dispatch))
        for dispatch in ended:
            self._rounds.release(dispatch)
        self._keep(ended)

    def _keep(self, ended: Sequence[OpenDispatch]) -> None:
        """Keep the replies among them that are fresh enough, and close the others."""
        config = self._pacing.config
        most_staleness = inf if config.max_staleness is None else config.max_staleness
        for dispatch in ended:
            if dispatch.reply.result() is None:
                self._rounds.discard([dispatch], "timeout")
                self._in_vain += 1
                continue
            self._in_vain = 0
            if self._rounds.version - dispatch.version > most_staleness:
                self._rounds.discard([dispatch], "too stale")
            else:
                self._replied.append(dispatch)
        if self._in_vain > MAX_IN_VAIN * config.concurrency:
            raise RunError(
                f"{self._in_vain} dispatches in a row ended without a reply: give clients more time with "
                "participation.client_timeout, or let fewer of them drop out"
            )


class BufferedConfig(AsynchronousConfig):
    """When replies are merged."""

    buffer: Clients | None = None
    """Replies that a merge waits for, K; ``participation.clients_per_round`` if left out."""


class Buffered(Asynchronous[BufferedConfig]):
    """Buffered asynchronous merging: every K replies are merged while clients go on; a merge is a round.

    Nguyen, Malik, Zhan, Yousefpour, Rabbat, Malek, Huba: Federated Learning with Buffered Asynchronous
    Aggregation, AISTATS 2022 (arXiv 2106.06639), algorithm 1. Their merge is that of ``fedbuff``; any
    algorithm that can merge stale replies runs under this pacing.
    """

    merges_per_round = 1

    def merge_size(self, cohort_size: int) -> int:
        """Return K."""
        return self.config.buffer or cohort_size


class Immediate(Asynchronous[AsynchronousConfig]):
    """Immediate asynchronous merging: each reply is merged when it comes.

    A round is as many merges as ``participation.clients_per_round`` says, so that rounds have as many replies
    as synchronous ones.

    Xie, Koyejo, Gupta: Asynchronous Federated Optimization, OPT 2020 (arXiv 1903.03934), algorithm 1. Their
    merge is that of ``fedasync``; any algorithm that can merge stale replies runs under this pacing.
    """

    merges_per_round = None

    def merge_size(self, cohort_size: int) -> int:
        """Return 1."""
        return 1


PLUGINS = {"buffered": Buffered, "immediate": Immediate}
