"""Synchronous pacing against a stand-in for the rounds that notes what it is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedsim import clock
from fedsim.algorithms.base import Exchange
from fedsim.clock import now_s
from fedsim.config import Config
from fedsim.runtime.pacing.synchronous import PLUGIN


@dataclass
class Ticket:
    client: int
    answer: asyncio.Future[Any]


class Rounds:
    """Client k answers after k + 1 seconds; the first exchange merges all but client 0."""

    exchanges = (Exchange("share"), Exchange("distil", who="answered"))
    num_rounds = 2

    def __init__(self, cohort: Sequence[int]) -> None:
        self.cohort = cohort
        self.calls: list[tuple[Any, ...]] = []

    def begin_round(self) -> None:
        self.calls.append(("begin", now_s()))

    def select(self) -> Sequence[int]:
        return self.cohort

    async def ask(
        self, exchange: Exchange, cohort: Sequence[int], answered: Sequence[int]
    ) -> Sequence[Ticket]:
        self.calls.append(("ask", exchange.name, list(cohort), list(answered)))
        loop = asyncio.get_running_loop()
        tickets = [Ticket(client, loop.create_future()) for client in answered]
        for ticket in tickets:
            loop.call_later(ticket.client + 1, ticket.answer.set_result, None)
        return tickets

    async def merge(self, exchange: Exchange, tickets: Sequence[Any]) -> Sequence[int]:
        self.calls.append(("merge", exchange.name, [ticket.client for ticket in tickets], now_s()))
        return [ticket.client for ticket in tickets if ticket.client]

    async def end_round(self) -> None:
        self.calls.append(("end", now_s()))


def test_each_exchange_waits_for_all_and_asks_those_who_answered() -> None:
    rounds = Rounds([0, 3, 1])
    clock.run(PLUGIN(Config()).run(rounds))
    one_round = [
        ("ask", "share", [0, 3, 1], [0, 3, 1]),
        ("ask", "distil", [0, 3, 1], [3, 1]),
    ]
    assert [call for call in rounds.calls if call[0] == "ask"] == one_round * 2
    assert [call for call in rounds.calls if call[0] != "ask"] == [
        ("begin", 0.0),
        ("merge", "share", [0, 3, 1], 4.0),
        ("merge", "distil", [3, 1], 8.0),
        ("end", 8.0),
        ("begin", 8.0),
        ("merge", "share", [0, 3, 1], 12.0),
        ("merge", "distil", [3, 1], 16.0),
        ("end", 16.0),
    ]


def test_an_empty_cohort_is_no_reason_to_stop() -> None:
    rounds = Rounds([])
    clock.run(PLUGIN(Config()).run(rounds))
    assert [call[0] for call in rounds.calls] == ["begin", "ask", "merge", "ask", "merge", "end"] * 2
