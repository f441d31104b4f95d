"""Synchronous rounds: an exchange closes when everyone asked has answered or has run out of time."""

from __future__ import annotations

from fedsim.clock import wait
from fedsim.config import Config
from fedsim.runtime.pacing.base import Pacing, Rounds


class Synchronous(Pacing[Config]):
    """Wait for all of the cohort."""

    async def run(self, rounds: Rounds) -> None:
        """Run one round after the other."""
        for _ in range(rounds.num_rounds):
            rounds.begin_round()
            cohort = rounds.select()
            answered = cohort
            for exchange in rounds.exchanges:
                tickets = await rounds.ask(exchange, cohort, answered)
                if tickets:
                    await wait([ticket.answer for ticket in tickets])
                answered = await rounds.merge(exchange, tickets)
            await rounds.end_round()


PLUGIN = Synchronous
