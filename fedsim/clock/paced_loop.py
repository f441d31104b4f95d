"""A real asyncio loop with a clock of fedsim's own, which may go faster than the host's, or stand still.

asyncio's own timers, such as those of sockets, count real time. What reads or waits for fedsim's clock
(:mod:`fedsim.clock`) counts emulated time: ``speed_up`` seconds of it pass in a second, and none while the
clock stands still. Timers of one instant run in the order of their classes, as in virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context
from heapq import heappop, heappush
from selectors import SelectSelector
from typing import Any, TypeVarTuple, Unpack, cast

from fedsim.clock.handles import EventClass
from fedsim.clock.loop import Timer, of_thread

Ts = TypeVarTuple("Ts")


class PacedLoop(asyncio.SelectorEventLoop):
    """A loop on which an emulation runs.

    Args:
        speed_up: Emulated seconds in a real one.
    """

    def __init__(self, speed_up: float = 1.0) -> None:
        # It waits to the microsecond, where epoll waits for whole milliseconds.
        super().__init__(SelectSelector())
        self.speed_up = speed_up
        self._heap: list[tuple[int, int, int, Timer]] = []
        self._turns = 0
        self._started_s = self.time()
        self._num_stops = 0
        self._stopped_ns = 0
        self._wake: asyncio.TimerHandle | None = None

    @property
    def now_ns(self) -> int:
        """Emulated time, ns."""
        if self._num_stops:
            return self._stopped_ns
        return int((self.time() - self._started_s) * self.speed_up * 1e9)

    def start_clock(self) -> None:
        """Let emulated time be 0 now."""
        self._started_s = self.time()
        self._set_wake()

    @contextmanager
    def stopped_clock(self) -> Iterator[None]:
        """Let no emulated time pass meanwhile."""
        self._stopped_ns = self.now_ns
        self._num_stops += 1
        self._set_wake()
        try:
            yield
        finally:
            self._num_stops -= 1
            if not self._num_stops:
                self._started_s = self.time() - self._stopped_ns / 1e9 / self.speed_up
                self._set_wake()

    def call_at_ns(
        self,
        when_ns: int,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        event_class: EventClass = EventClass.ORDINARY,
        turn: int | None = None,
        context: Context | None = None,
    ) -> Timer:
        """Schedule a callback at an instant of emulated time; one that is past is now."""
        timer = Timer(when_ns, callback, args, self, context)
        heappush(self._heap, (when_ns, event_class, self.take_turn() if turn is None else turn, timer))
        if self._heap[0][3] is timer:
            self._set_wake()
        return timer

    def take_turn(self) -> int:
        """Return a place in the order of submission for a later :meth:`call_at_ns`."""
        self._turns += 1
        return self._turns

    def run_forever(self) -> None:
        """Run until :meth:`stop`, as the loop that fedsim's clock belongs to."""
        of_thread.loop = cast(Any, self)
        try:
            super().run_forever()
        finally:
            of_thread.loop = None

    def _set_wake(self) -> None:
        """Wake up when the first timer is due."""
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None
        if self._heap and not self._num_stops:
            due_s = self._started_s + self._heap[0][0] / 1e9 / self.speed_up
            self._wake = self.call_at(due_s, self._run_due)

    def _run_due(self) -> None:
        heap, self._wake = self._heap, None
        try:
            while heap and heap[0][0] <= self.now_ns and not self._num_stops:
                *_, timer = heappop(heap)
                if (callback := timer._callback) is not None:
                    timer._context.run(callback, *timer._args)
        finally:
            self._set_wake()
