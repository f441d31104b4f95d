"""A stand-in for the rounds of a run, for pacings that merge replies of several versions."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest

from fedsim import clock
from fedsim.algorithms.base import Exchange, Reply
from fedsim.bus import Header
from fedsim.clock import call_after, now_s, sleep_until, wait
from fedsim.errors import MergeError
from fedsim.rng import Key
from fedsim.runtime.policies.pacing.base import Pacing
from fedsim.runtime.server.open_dispatches import OpenDispatch

TRAIN = Exchange("train")


@dataclass
class Rounds:
    """Clients asked in the order of their numbers; a dispatch takes ``takes_s(client, number)``."""

    exchanges: ClassVar = (TRAIN,)

    takes_s: Callable[[int, int], float | None]  # None: its lease ends after 20 s
    num_clients: int
    num_rounds: int = 1
    cohort_size: int = 1
    there_from_s: Mapping[int, float] = field(default_factory=dict)  # others: from the start
    merge_s: float = 0
    refused: list[int] = field(default_factory=list)  # versions whose merge is refused once
    accuracy: Callable[[int, int], float] | None = None  # by client and version
    version: int = 0
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    open: dict[OpenDispatch, None] = field(default_factory=dict)
    busy: Counter[int] = field(default_factory=Counter)
    numbers: Counter[int] = field(default_factory=Counter)
    took_s: dict[int, float] = field(default_factory=dict)
    staleness: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.free = set(self.clients)

    @property
    def clients(self) -> Sequence[int]:
        return range(self.num_clients)

    @property
    def key(self) -> Key:
        return Key.root(0)

    def begin_round(self) -> None:
        self.calls.append(("begin", now_s()))

    async def wait_for_candidates(self, until: Sequence[asyncio.Future[Any]] = ()) -> None:
        comes_s = min((self.there_from_s.get(client, 0.0) for client in self.free), default=0.0)
        if comes_s > now_s():
            if until:
                await wait(until, timeout=comes_s - now_s(), wanted=1)
            else:
                await sleep_until(comes_s)

    async def select(self, count: int, among: Sequence[int] | None = None) -> Sequence[int]:
        free = sorted(self.free) if among is None else [client for client in among if client in self.free]
        return [client for client in free if self.there_from_s.get(client, 0.0) <= now_s()][:count]

    async def dispatch(
        self, exchange: Exchange, cohort: Sequence[int], answered: Sequence[int]
    ) -> Sequence[OpenDispatch]:
        return [self._send(exchange, client) for client in cohort]

    def _send(self, exchange: Exchange, client: int) -> OpenDispatch:
        number = self.numbers[client]
        self.numbers[client] += 1
        self.busy[client] += 1
        self.free.discard(client)
        header = Header(-1, client, 1, exchange.name, number, number)
        reply: asyncio.Future[Reply | None] = asyncio.get_running_loop().create_future()
        one = OpenDispatch(header, self.version, now_s(), reply)
        self.open[one] = None
        self.calls.append(("ask", client, self.version, now_s()))
        takes_s = self.takes_s(client, number)
        if takes_s is None:
            call_after(20, self._settle, one, None)
        else:
            message = Reply(client, number, exchange.name, self.version, 0, 1.0, None)
            call_after(takes_s, self._settle, one, message)
        return one

    def _settle(self, one: OpenDispatch, reply: Reply | None) -> None:
        if not one.reply.done():
            if reply is not None:
                self.took_s[one.client] = now_s() - one.sent_at_s
            one.reply.set_result(reply)

    async def merge(self, exchange: Exchange, dispatches: Sequence[OpenDispatch]) -> Sequence[int]:
        for one in dispatches:
            self._close(one)
        replied = [one for one in dispatches if one.reply.done() and one.reply.result() is not None]
        self.staleness += [self.version - one.version for one in replied]
        self.calls.append(("merge", [one.client for one in replied], now_s()))
        if self.merge_s:
            await sleep_until(now_s() + self.merge_s)
        if self.version in self.refused:
            self.refused.remove(self.version)
            raise MergeError("the merge leaves the finite range")
        self.version += bool(replied)
        return sorted(one.client for one in replied)

    def release(self, dispatch: OpenDispatch) -> None:
        if not dispatch.released:
            dispatch.released = True
            self.busy[dispatch.client] -= 1
            if not self.busy[dispatch.client]:
                self.free.add(dispatch.client)

    def discard(self, dispatches: Sequence[OpenDispatch], cause: str) -> None:
        for one in dispatches:
            self._close(one)
        if dispatches:
            self.calls.append(("discard", [one.client for one in dispatches], cause, now_s()))

    def _close(self, one: OpenDispatch) -> None:
        del self.open[one]  # no dispatch is closed twice
        self.release(one)

    def predicted_s(self, exchange: Exchange, clients: Sequence[int]) -> list[float]:
        known = sorted(self.took_s.values())
        return [self.took_s.get(client, known[len(known) // 2]) for client in clients] if known else []

    async def accuracies(self) -> Mapping[int, float]:
        if self.accuracy is None:
            return {}
        return {client: self.accuracy(client, self.version) for client in self.clients}

    async def end_round(self) -> None:
        self.calls.append(("end", now_s()))

    def of(self, *names: str) -> list[tuple[Any, ...]]:
        return [call for call in self.calls if call[0] in names]

    def play(self, pacing: Pacing[Any]) -> Rounds:
        """Run, and see that nothing is left open."""
        clock.run(pacing.run(self))
        assert not self.open
        return self


@pytest.fixture
def rounds() -> type[Rounds]:
    """The stand-in, since test files cannot import from one another."""
    return Rounds
