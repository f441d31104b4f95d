"""Many timeouts of one duration, of which only the earliest is a timer of the loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from fedsim.clock.handles import EventClass
from fedsim.clock.loop import of_thread, to_ns
from fedsim.clock.sleep_and_wait import call_after, now_ns

T = TypeVar("T")


class Timeout(Generic[T]):
    """One timeout of :class:`Timeouts`."""

    __slots__ = ("_item", "_of", "_turn", "_when_ns")

    def __init__(self, of: Timeouts[T], item: T, when_ns: int, turn: int) -> None:
        self._of = of
        self._item: T | None = item  # None once it has expired or was cancelled
        self._when_ns = when_ns
        self._turn = turn

    def cancel(self) -> None:
        """End it early; harmless when it has expired or was cancelled before."""
        self._item = None
        self._of._cancelled(self)


class Timeouts(Generic[T]):
    """Timeouts of equal length; ``expire`` is called with the item of one, as an event of the class DEADLINE.

    Each runs in the place that a timer of its own would have. A timeout costs a place in a queue, not in the
    heap.
    """

    def __init__(self, seconds: float, expire: Callable[[T], object]) -> None:
        self._lasts_ns = to_ns(seconds)
        self._expire = expire
        self._queue: deque[Timeout[T]] = deque()
        self._timer: asyncio.TimerHandle | None = None  # of the first in the queue

    def start(self, item: T) -> Timeout[T]:
        """Start a timeout for something (not None)."""
        loop = of_thread.loop
        if loop is None:
            timeout = Timeout(self, item, now_ns() + self._lasts_ns, 0)
        else:
            timeout = Timeout(self, item, loop.now_ns + self._lasts_ns, loop.take_turn())
        self._queue.append(timeout)
        if self._timer is None:
            self._set_timer()
        return timeout

    def _cancelled(self, timeout: Timeout[T]) -> None:
        if self._timer is not None and self._queue[0] is timeout:
            self._timer.cancel()
            self._set_timer()

    def _set_timer(self) -> None:
        """Set the timer for the first open timeout."""
        queue = self._queue
        while queue and queue[0]._item is None:
            queue.popleft()
        self._timer = self._timer_for(queue[0]) if queue else None

    def _timer_for(self, timeout: Timeout[T]) -> asyncio.TimerHandle:
        loop = of_thread.loop
        if loop is None:
            seconds = max(0, timeout._when_ns - now_ns()) / 1e9
            return call_after(seconds, self._end_first, event_class=EventClass.DEADLINE)
        return loop.call_at_ns(
            timeout._when_ns, self._end_first, event_class=EventClass.DEADLINE, turn=timeout._turn
        )

    def _end_first(self) -> None:
        item = self._queue[0]._item
        self._queue[0]._item = None
        self._set_timer()
        if item is not None:
            self._expire(item)
