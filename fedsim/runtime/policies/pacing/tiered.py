"""Tiered rounds: clients are grouped by how fast they are, and each round asks the clients of one tier.

So nobody waits for clients that are much slower. The first ``profiling`` rounds ask clients that have not
been asked yet. Then all are sorted by how long they took last and cut into equally large tiers, anew after
every ``interval_rounds`` rounds; who has not replied yet counts as the median. The tier of a round is drawn.
All are equally likely at first. After every ``interval_rounds`` rounds, if the tier drawn last is no more
accurate than it was that many rounds before, the probabilities change in favour of tiers that are less
accurate; every tier keeps some. Where nobody of the tier is there, another is drawn.

Accuracies of tiers are the observer's: of the model that stands for each measured client, on its samples of
``evaluation.split``. The paper, too, measures beside the protocol. No frame is counted for this: a real
server would send the model to these clients every ``interval_rounds`` rounds, and each would run it over its
test samples. Where nothing is learned, tiers stay equally likely.

Chai, Ali, Zawad, Truex, Anwar, Baracaldo, Zhou, Ludwig, Yan, Cheng: TiFL: A Tier-based Federated Learning
System, HPDC 2020 (arXiv 2001.09249), algorithm 2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import numpy as np
from pydantic import Field

from fedsim.errors import Fault
from fedsim.params import Array
from fedsim.ranges import Clients
from fedsim.runtime.policies.pacing.base import Rounds
from fedsim.runtime.policies.pacing.synchronous import Choose, SynchronousConfig, SynchronousRounds

Times = Annotated[int, Field(ge=1, le=10**9)]


class TieredConfig(SynchronousConfig):
    """How clients are grouped, how a tier is chosen, and when its round closes."""

    tiers: Clients = 5
    """Groups of clients."""
    profiling: Times = 5
    """Rounds before clients are grouped."""
    interval_rounds: Times = 20
    """Rounds after which clients are grouped anew, and the probabilities of tiers may change."""
    credits: Times | None = None
    """Times that each tier may be chosen; once none may be any more, each may be so often again. Any number
    if left out."""


class Tiered(SynchronousRounds[TieredConfig]):
    """Synchronous rounds, each with clients of one tier."""

    def misfits(self, cohort_size: int, num_eligible: int) -> Iterator[Fault]:
        """Yield that there are more tiers than clients."""
        if self.config.tiers > num_eligible:
            yield Fault(
                "participation.pacing.params.tiers",
                f"{self.config.tiers} tiers, and {num_eligible} clients can take part",
                f"write {num_eligible} or fewer",
            )

    def chooser(self, rounds: Rounds) -> Choose:
        """Return what chooses a tier, and its cohort."""
        return _Tiers(self.config, rounds).choose


class _Tiers:
    """The tiers of a run."""

    def __init__(self, config: TieredConfig, rounds: Rounds) -> None:
        self._config = config
        self._rounds = rounds
        self._exchange = next((exchange for exchange in rounds.exchanges if exchange.who == "cohort"), None)
        self._took_s([])  # from now on times are noted
        self._num_chosen = 0
        self._unasked = set(rounds.clients)
        self._members: list[list[int]] = []
        self._probabilities = np.full(config.tiers, 1 / config.tiers)
        self._credits = self._full_credits()
        self._current = 0
        self._accuracies: Array | None = None

    async def choose(self, count: int) -> Sequence[int]:
        """Return the cohort of a round."""
        number = self._num_chosen - self._config.profiling
        self._num_chosen += 1
        if number < 0:
            cohort = await self._rounds.select(count, among=sorted(self._unasked))
            self._unasked.difference_update(cohort)
            return cohort or await self._rounds.select(count)
        if number % self._config.interval_rounds == 0:
            self._group()
            await self._adapt()
        return await self._cohort(count, self._rounds.key.child("tier", number).numpy())

    def _took_s(self, clients: Sequence[int]) -> Sequence[float]:
        return [] if self._exchange is None else self._rounds.predicted_s(self._exchange, clients)

    def _group(self) -> None:
        """Sort the clients into tiers, the fastest first."""
        clients = np.array(self._rounds.clients)
        took_s = self._took_s(clients.tolist()) or np.zeros(len(clients))
        tiers = np.array_split(clients[np.argsort(took_s, kind="stable")], self._config.tiers)
        self._members = [sorted(tier.tolist()) for tier in tiers]

    async def _adapt(self) -> None:
        """Change the probabilities if the tier at hand has become no more accurate."""
        by_client = await self._rounds.accuracies()
        if not by_client:
            return
        measured = [[by_client[client] for client in tier if client in by_client] for tier in self._members]
        usual = np.mean(list(by_client.values()))  # of a tier of which nobody was measured
        accuracies = np.array([np.mean(tier) if tier else usual for tier in measured])
        before, self._accuracies = self._accuracies, accuracies
        if before is not None and accuracies[self._current] <= before[self._current]:
            # The least accurate of n tiers is n times as likely as the most accurate one.
            ranks = np.argsort(np.argsort(-accuracies, kind="stable"), kind="stable") + 1
            self._probabilities = ranks / ranks.sum()

    async def _cohort(self, count: int, draws: np.random.Generator) -> Sequence[int]:
        """Draw tiers until one has an available client; return its cohort, empty if none has."""
        untried = np.ones(len(self._members), np.bool_)
        while untried.any():
            if not self._credits[untried].any():
                self._credits[untried] = self._full_credits()[untried]
            weights = self._probabilities * untried * (self._credits > 0)
            tier = int(draws.choice(len(weights), p=weights / weights.sum()))
            if cohort := await self._rounds.select(count, among=self._members[tier]):
                self._current = tier
                self._credits[tier] -= 1
                return cohort
            untried[tier] = False
        return []

    def _full_credits(self) -> Array:
        return np.full(self._config.tiers, np.inf if self._config.credits is None else self._config.credits)


PLUGIN = Tiered
