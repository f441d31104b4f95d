"""A state machine: dispatches and replies while a proxy cuts and stalls, and the client process restarts."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from fedsim.bus import Delivery
from fedsim.bus.http.state_folder import StateFolder
from tests.bus.http.conftest import SkippingLoop, new_world, within

Key = tuple[int, int]
"""Client and dispatch."""

CLIENTS = 3
SIZES = {"header": 0, "small": 10, "large": 20_000}  # floats
COUNTS = st.integers(1, 4)
MAX_AT_ONCE = 4
TIMEOUT_S = 600.0
"""More than any step takes: who finds a fault tries hundreds of times to find a simpler one."""


class Talk(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.ends = ExitStack()
        self.loop = SkippingLoop()
        self.asked: list[Key] = []
        self.framed = 0
        self.coming: set[Key] = set()  # the process will receive them
        self.in_hand: dict[int, deque[Delivery]] = {client: deque() for client in range(CLIENTS)}
        self.going: set[Key] = set()  # the server will receive them
        self.received: list[Key] = []
        self.is_stalled = False

    def do(self, work: Awaitable[Any]) -> Any:
        return self.loop.run_until_complete(within(work, TIMEOUT_S))

    async def called(self, function: Callable[..., Any], *arguments: Any) -> None:
        function(*arguments)

    @initialize()
    def start(self) -> None:
        self.world = self.do(new_world(num_clients=CLIENTS))
        self.proxy = self.do(self.world.proxy(slice_bytes=1 << 13))
        self.forget()
        self.do(self.begin())

    def forget(self) -> None:
        self.folder = Path(self.ends.enter_context(TemporaryDirectory()))

    async def begin(self) -> None:
        """Start a process, and work out what it has to receive and what the server has."""
        self.state = StateFolder(self.folder)
        self.client = self.world.client(
            f"0-{CLIENTS - 1}", url=self.proxy.url, state=self.state, jitter=lambda: 0.5
        )
        await self.client.connect()
        self.coming = set(self.world.server._dispatches)
        self.going = set(self.asked) - set(self.received) - self.coming
        for deliveries in self.in_hand.values():
            deliveries.clear()

    async def kill(self) -> None:
        closing = asyncio.ensure_future(self.client.close(0))
        await asyncio.sleep(0)
        self.proxy.reset_all()  # its connections end with a process; it does not take its leave
        await closing
        self.state.close()

    # Rules

    @rule(asks=st.lists(st.tuples(st.integers(0, CLIENTS - 1), st.sampled_from(list(SIZES))), min_size=1))
    def ask(self, asks: list[tuple[int, str]]) -> None:
        for client, size in asks[:MAX_AT_ONCE]:
            key = client, len(self.asked)
            self.asked.append(key)
            self.coming.add(key)
            self.framed += size != "header"
            self.do(self.called(self.world.ask, *key, SIZES[size]))

    @precondition(lambda self: not self.is_stalled)
    @rule(count=COUNTS)
    def deliver(self, count: int) -> None:
        for _ in range(min(count, len(self.coming))):
            delivery = self.do(self.world.got(self.client))
            key = delivery.header.client, delivery.header.dispatch
            assert key in self.coming, "delivered twice, or after it was answered"
            earlier = [other for other in self.coming if other[0] == key[0] and other < key]
            assert not earlier, "not in order"
            self.coming.remove(key)
            self.in_hand[key[0]].append(delivery)

    @rule(count=COUNTS, first=st.integers(0, CLIENTS - 1))
    def answer(self, count: int, first: int) -> None:
        for step in range(count):
            deliveries = self.in_hand[(first + step) % CLIENTS]
            if deliveries:
                delivery = deliveries.popleft()
                self.going.add((delivery.header.client, delivery.header.dispatch))
                self.do(self.called(self.world.reply, self.client, delivery))

    @precondition(lambda self: not self.is_stalled)
    @rule(count=COUNTS)
    def take(self, count: int) -> None:
        for _ in range(min(count, len(self.going))):
            answer = self.do(self.world.taken())
            key = answer.header.client, answer.header.dispatch
            assert key in self.going, "received twice, or without an answer"
            earlier = [other for other in self.received if other[0] == key[0] and other > key]
            assert not earlier, "not in order"
            self.going.remove(key)
            self.received.append(key)

    @precondition(lambda self: self.asked)
    @rule(num_bytes=st.none() | st.sampled_from([1, 100, 500, 5_000, 50_000, 100_000]))
    def cut(self, num_bytes: int | None) -> None:
        if num_bytes is None:
            self.proxy.reset_all()
        else:
            self.proxy.reset_after = self.proxy.up + num_bytes

    @precondition(lambda self: self.asked and not self.is_stalled)
    @rule(for_long=st.booleans())
    def stall(self, for_long: bool) -> None:
        """Let nothing through; perhaps for so long that each side takes the other for dead."""
        self.swallow(True)
        if for_long:
            self.do(self.world.until(lambda: not self.world.server.is_connected(0)))

    @precondition(lambda self: self.is_stalled)
    @rule()
    def go_on(self) -> None:
        self.swallow(False)

    def swallow(self, everything: bool) -> None:
        self.proxy.swallow(everything)
        self.is_stalled = everything

    @precondition(lambda self: self.asked)
    @rule(remembers=st.booleans())
    def restart(self, remembers: bool) -> None:
        self.do(self.kill())
        self.swallow(False)
        if not remembers:
            self.forget()
        self.do(self.begin())

    def teardown(self) -> None:
        try:
            self.settle()
        finally:
            self.do(self.world.close())
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()
            self.ends.close()

    def settle(self) -> None:
        """Let everything come to rest, and count."""
        self.swallow(False)
        while self.coming or any(self.in_hand.values()):
            self.deliver(len(self.coming))
            self.answer(CLIENTS, 0)
            self.take(len(self.going))
        self.take(len(self.going))
        server, ledger = self.world.server, self.world.ledger
        assert sorted(self.received, key=lambda key: key[1]) == self.asked
        assert not self.world.num_open
        assert ledger.outcomes()["delivered"] == len(ledger) == 2 * self.framed
        # What was sent again, or had been asked of a process that is gone, is known and dropped.
        assert not {"fault", "client", "decode", "refused"} & set(server.rejected), server.rejected
        self.do(self.kill())


@pytest.mark.parametrize("examples", [12, pytest.param(100, marks=pytest.mark.slow)])
def test_every_message_arrives_once_and_in_order_whatever_happens(examples: int) -> None:
    run_state_machine_as_test(Talk, settings=settings(stateful_step_count=30, max_examples=examples))
