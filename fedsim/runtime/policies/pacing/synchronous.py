"""Synchronous rounds: dispatch to a cohort, close the round, merge, and begin the next.

By default a round closes when all of the cohort have replied or have run out of time. Over-selection invites
more clients than are wanted and closes with the fastest (Bonawitz et al., MLSys 2019, arXiv 1902.01046,
invite 130 %); a deadline closes in any case, at a fixed time or at a quantile of the cohort's predicted
times. All of these combine, for the first exchange of a round; in the others, which concern those who
replied to it, only the deadline applies. A round with too few replies fails: nothing is merged; and so does
one whose merge is refused, because it leaves the finite range. Where late replies are carried over and
no client is left to select, the round waits for those, until its deadline.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from math import ceil
from typing import Annotated, Literal, Self, TypeVar

import numpy as np
from pydantic import Field, model_validator

from fedsim.algorithms.base import Exchange
from fedsim.clock import now_s, sleep_until, wait
from fedsim.config import Config
from fedsim.errors import MergeError, RunError
from fedsim.ranges import Clients, PositiveShare
from fedsim.runtime.policies.pacing.base import Pacing, Rounds, is_reply, numbers
from fedsim.runtime.server.open_dispatches import RUN_ENDED, OpenDispatch
from fedsim.units import PositiveSeconds

Dispatches = dict[str, list[OpenDispatch]]
"""Open dispatches by the name of their exchange."""

Choose = Callable[[int], Awaitable[Sequence[int]]]
"""Returns so many clients that can be asked now, or fewer; ascending."""

MAX_REPEATS = 100
"""A round that fails so often in a row ends the run."""


class SynchronousConfig(Config):
    """When a synchronous round closes."""

    over_selection: Annotated[float, Field(ge=1, le=100)] = 1.0
    """Clients invited for each one wanted; the round closes with as many replies as are wanted."""
    deadline: PositiveSeconds | None = None
    """Time after which an exchange closes in any case; none if left out."""
    deadline_quantile: PositiveShare | None = None
    """Or: the quantile of the cohort's predicted times at which it closes. A client is predicted to take as
    long as it took last, a new one as long as the median of the others; the first round has no deadline."""
    late: Literal["drop", "carry"] = "drop"
    """What becomes of replies after the deadline: dropped, or merged with those of the round in which they
    come, unless their lease runs out before."""
    interval: PositiveSeconds | None = None
    """Time from the beginning of one round to that of the next, where the round takes no longer."""
    min_replies: Clients = 1
    """With fewer replies an exchange fails, and with it its round; as it does where a merge is refused."""
    on_failure: Literal["skip", "repeat", "stop"] = "skip"
    """What happens then: the next round, the same round with another cohort, or the end of the run."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.deadline is not None and self.deadline_quantile is not None:
            raise ValueError("deadline and deadline_quantile both say when a round closes: give one of them")
        if self.late == "carry" and self.deadline is None and self.deadline_quantile is None:
            raise ValueError("late = 'carry' needs something to be late for: give a deadline")
        return self


S = TypeVar("S", bound=SynchronousConfig)


class SynchronousRounds(Pacing[S]):
    """One round after the other."""

    @property
    def carries(self) -> bool:
        """Whether late replies are merged in a later round."""
        return self.config.late == "carry"

    @property
    def waits_for_all(self) -> bool:
        """Whether no reply comes too late: there is no deadline, and nobody is invited for nothing."""
        config = self.config
        return config.over_selection == 1 and config.deadline is None and config.deadline_quantile is None

    async def run(self, rounds: Rounds) -> None:
        """Run all rounds."""
        carried: Dispatches = {}
        began_at_s = 0.0
        choose = self.chooser(rounds)
        for number in numbers(rounds):
            if number and self.config.interval is not None:
                await sleep_until(max(began_at_s + self.config.interval, now_s()))
            began_at_s = now_s()
            rounds.begin_round()
            repeats = 0
            while (failure := await self._round(rounds, choose, carried)) is not None:
                repeats += 1
                if self.config.on_failure == "stop" or repeats > MAX_REPEATS:
                    what, why = failure
                    times = f" {repeats} times in a row" if repeats > 1 else ""
                    raise RunError(f"{what}{times}: {why}, or let on_failure be 'skip'")
                if self.config.on_failure == "skip":
                    break
            await rounds.end_round()
        if left := _all(carried):
            rounds.discard(left, RUN_ENDED)

    def chooser(self, rounds: Rounds) -> Choose:
        """Return what chooses the cohorts of a run: by default the selector, from all candidates."""
        return rounds.select

    async def _round(self, rounds: Rounds, choose: Choose, carried: Dispatches) -> tuple[str, str] | None:
        """Hold one round; say what failed, with what to do about it, or None."""
        await rounds.wait_for_candidates([dispatch.reply for dispatch in _all(carried)])
        cohort = await choose(ceil(self.config.over_selection * rounds.cohort_size))
        answered: Sequence[int] = cohort
        for number, exchange in enumerate(rounds.exchanges):
            concerns_any = {"all": True, "cohort": bool(cohort), "answered": bool(answered)}[exchange.who]
            dispatches = await rounds.dispatch(exchange, cohort, answered)
            before = carried.pop(exchange.name, [])
            awaited = dispatches or before
            is_invited = bool(dispatches) and number == 0 and exchange.who == "cohort"
            wanted = rounds.cohort_size if is_invited else len(awaited)
            late = not await wait(
                [dispatch.reply for dispatch in awaited],
                timeout=self._deadline_s(rounds, exchange, awaited),
                wanted=wanted,
                counts=is_reply,
            )
            carries = late and self.config.late == "carry"
            kept, closed = ([*before, *dispatches], []) if carries else (before, dispatches)
            carried[exchange.name] = [dispatch for dispatch in kept if not dispatch.reply.done()]
            ready = [*(dispatch for dispatch in kept if dispatch.reply.done()), *closed]
            # No failure: an algorithm that sends no dispatch, and only later exchanges with open ones.
            is_passed_over = not awaited and (concerns_any or bool(_all(carried)))
            num_replies = sum(is_reply(dispatch.reply) for dispatch in ready)
            if not is_passed_over and num_replies < self.config.min_replies:
                rounds.discard(ready, "round failed")
                few = f"a round had fewer than min_replies = {self.config.min_replies} replies"
                return few, "ask more clients, give them more time"
            try:
                answered = await rounds.merge(exchange, ready)
            except MergeError as error:
                return "a merge was refused", f"{error}; find who sends such values, give a smaller lr"
        return None

    def _deadline_s(
        self, rounds: Rounds, exchange: Exchange, dispatches: Sequence[OpenDispatch]
    ) -> float | None:
        if self.config.deadline_quantile is None:
            return self.config.deadline
        predicted = rounds.predicted_s(exchange, [dispatch.client for dispatch in dispatches])
        return float(np.quantile(predicted, self.config.deadline_quantile)) if predicted else None


class Synchronous(SynchronousRounds[SynchronousConfig]):
    """One round after the other, each with a cohort of all clients."""

    may_change = True


def _all(carried: Dispatches) -> list[OpenDispatch]:
    return [dispatch for dispatches in carried.values() for dispatch in dispatches]


PLUGIN = Synchronous
