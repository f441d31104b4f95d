"""Lagged rounds: each closes with the first replies, and clients that are slower go on for some rounds.

At the beginning of a round clients are asked until ``concurrency`` are at work. It closes when as many have
replied as are wanted, or at its deadline, and merges all replies that have come, of whichever round they are.
Who is still at work goes on, until its dispatch is more than ``max_lag`` versions behind. Then the dispatch
is given up, and its client, if it is there, is asked anew with the newest model, which it begins when it is
done with the old one. Or else rounds wait for it. Either way no reply is merged that is staler than
``max_lag`` (bounded staleness).

After Wu, He, Lin, Mao, Maple, Jarvis: SAFA: A Semi-Asynchronous Protocol for Fast Federated Learning with Low
Overhead, IEEE Transactions on Computers 2021 (arXiv 1910.01355). Theirs has a cache of updates beside, from
which a client that has not replied counts with its last one, and there a client that is too far behind stops
at once.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Literal

from pydantic import Field

from fedsim.algorithms.base import Exchange
from fedsim.clock import end_of_instant, wait
from fedsim.errors import MergeError
from fedsim.ranges import Clients
from fedsim.runtime.policies.pacing.base import Rounds, is_reply, numbers
from fedsim.runtime.policies.pacing.overlapping import Overlapping, OverlappingConfig
from fedsim.runtime.server.open_dispatches import RUN_ENDED, OpenDispatch
from fedsim.units import PositiveSeconds


class LaggedConfig(OverlappingConfig):
    """When a round closes, and how far clients may fall behind."""

    concurrency: Clients
    """Dispatches that are open at the beginning of a round."""
    max_lag: Annotated[int, Field(ge=0, le=10**9)] = 5
    """Versions that a dispatch may fall behind."""
    behind: Literal["give_up", "wait"] = "give_up"
    """What becomes of one that would fall further: it is given up, or its reply is waited for."""
    deadline: PositiveSeconds | None = None
    """Time after which a round closes with fewer replies; it does not shorten the wait for who is behind."""


class Lagged(Overlapping[LaggedConfig]):
    """Rounds that close with the first replies, and leave the other clients at work."""

    may_change = True

    def merge_size(self, cohort_size: int) -> int:
        """Return the number of replies that are wanted in a round."""
        return cohort_size

    async def run(self, rounds: Rounds) -> None:
        """Run all rounds."""
        (exchange,) = rounds.exchanges
        at_work: list[OpenDispatch] = []
        for _ in numbers(rounds):
            rounds.begin_round()
            at_work = await self._ask(rounds, exchange, at_work)
            replies = [dispatch.reply for dispatch in at_work]
            await wait(replies, timeout=self.config.deadline, wanted=rounds.cohort_size, counts=is_reply)
            if self.config.behind == "wait":
                last = [each for each in at_work if self._lag(rounds, each) >= self.config.max_lag]
                await wait([dispatch.reply for dispatch in last])
            await end_of_instant()
            ended = [dispatch for dispatch in at_work if dispatch.reply.done()]
            at_work = [dispatch for dispatch in at_work if not dispatch.reply.done()]
            with suppress(MergeError):  # the record has it; the next round begins from the state before
                await rounds.merge(exchange, ended)
            await rounds.end_round()
        rounds.discard(at_work, RUN_ENDED)

    async def _ask(
        self, rounds: Rounds, exchange: Exchange, at_work: list[OpenDispatch]
    ) -> list[OpenDispatch]:
        """Give up what is too far behind, and ask its clients, and others; return what is open then."""
        behind = [dispatch for dispatch in at_work if self._lag(rounds, dispatch) > self.config.max_lag]
        rounds.discard(behind, "too stale")
        at_work = [dispatch for dispatch in at_work if self._lag(rounds, dispatch) <= self.config.max_lag]
        if behind:
            again = await rounds.select(len(behind), among=sorted(dispatch.client for dispatch in behind))
            at_work += await rounds.dispatch(exchange, again, again)
        if (missing := self.config.concurrency - len(at_work)) > 0:
            await rounds.wait_for_candidates([dispatch.reply for dispatch in at_work])
            cohort = await rounds.select(missing)
            at_work += await rounds.dispatch(exchange, cohort, cohort)
        return at_work

    def _lag(self, rounds: Rounds, dispatch: OpenDispatch) -> int:
        return rounds.version - dispatch.version


PLUGIN = Lagged
