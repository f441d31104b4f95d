"""Reading the clock, sleeping, and deadlines; each also works on a real asyncio loop.

Code that is written with these runs unchanged over the aiohttp bus, where the loop's own clock takes the
place of virtual time (and where the classes of events within one instant have no meaning). A real loop counts
from some instant of the host's; :func:`start_clock` lets a run begin at 0 there too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self
from weakref import WeakKeyDictionary

from fedsim.clock.handles import EventClass
from fedsim.clock.loop import VirtualTimeLoop, of_thread, to_ns

_started_s: WeakKeyDictionary[asyncio.AbstractEventLoop, float] = WeakKeyDictionary()
"""By real loop, its own time at the instant that is 0 here."""


def start_clock() -> None:
    """Let this instant be 0 on the running loop, a real one; for what is timed from now on.

    Raises:
        RuntimeError: When no loop is running, or one on virtual time, which begins at 0 by itself.
    """
    if of_thread.loop is not None:
        raise RuntimeError("virtual time begins at 0 by itself, and nothing can set it back")
    loop = asyncio.get_running_loop()
    _started_s[loop] = loop.time()


def _zero_s(loop: asyncio.AbstractEventLoop) -> float:
    return _started_s.get(loop, 0.0)


def running_loop() -> asyncio.AbstractEventLoop:
    """Return the running loop, as :func:`asyncio.get_running_loop`, and sooner on virtual time.

    Raises:
        RuntimeError: When no loop is running.
    """
    return of_thread.loop or asyncio.get_running_loop()


def now_ns() -> int:
    """Return the running loop's time in whole nanoseconds.

    Raises:
        RuntimeError: When no loop is running.
    """
    virtual = of_thread.loop
    if virtual is not None:
        return virtual._now_ns
    loop = asyncio.get_running_loop()
    return int((loop.time() - _zero_s(loop)) * 1e9)


def now_s() -> float:
    """Return the running loop's time in seconds.

    Raises:
        RuntimeError: When no loop is running.
    """
    virtual = of_thread.loop
    if virtual is not None:
        return virtual._now_ns / 1_000_000_000
    loop = asyncio.get_running_loop()
    return loop.time() - _zero_s(loop)


def call_after(
    seconds: float,
    callback: Callable[..., object],
    *args: Any,
    event_class: EventClass = EventClass.ORDINARY,
) -> asyncio.TimerHandle:
    """Call ``callback(*args)`` after a duration; the handle's ``cancel`` takes it back.

    Raises:
        ValueError: For NaN or an infinity.
        RuntimeError: When no loop is running.
    """
    virtual = of_thread.loop
    if virtual is not None:
        when_ns = virtual._now_ns + to_ns(seconds)
        return virtual.call_at_ns(when_ns, callback, *args, event_class=event_class)
    return asyncio.get_running_loop().call_later(seconds, callback, *args)


async def sleep_for(seconds: float) -> None:
    """Sleep for a duration; at once runnable work goes first even if it is 0 or negative.

    Raises:
        ValueError: For NaN or an infinity.
    """
    loop = of_thread.loop
    if loop is not None:
        await _sleep_until_ns(loop, loop.now_ns + to_ns(seconds))
    else:
        to_ns(seconds)  # the same numbers are refused on either loop
        await asyncio.sleep(seconds)


async def sleep_until(seconds: float) -> None:
    """Sleep until an instant of the loop's time; one that is past is now.

    Raises:
        ValueError: For NaN or an infinity.
    """
    loop = of_thread.loop
    if loop is not None:
        await _sleep_until_ns(loop, to_ns(seconds))
    else:
        to_ns(seconds)
        await asyncio.sleep(seconds - now_s())


async def _sleep_until_ns(loop: VirtualTimeLoop, when_ns: int) -> None:
    future = loop.create_future()
    # A cancelled sleeper runs, and cancels its timer, before any other timer: nothing can be set twice.
    timer = loop.call_at_ns(when_ns, future.set_result, None)
    try:
        await future
    finally:
        timer.cancel()


class Deadline:
    """Cancels the block under it at an instant, after everything else that happens at that instant.

    Work that ends exactly at the deadline therefore counts. Made by :func:`deadline_at` and
    :func:`deadline_after`; used once, with ``async with``.

    Args:
        seconds: An instant of the loop's time, or a duration that starts when the block is entered.
        is_instant: Which of the two.

    Raises:
        ValueError: For NaN or an infinity.
    """

    _task: asyncio.Task[Any]
    _timer: asyncio.TimerHandle
    _cancelling: int

    def __init__(self, seconds: float, *, is_instant: bool) -> None:
        self._ns = to_ns(seconds)
        self._is_instant = is_instant
        self._entered = False
        self._expired = False

    def expired(self) -> bool:
        """Say whether the block was cancelled by this deadline."""
        return self._expired

    async def __aenter__(self) -> Self:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a deadline can only be used inside a task")
        if self._entered:
            raise RuntimeError("this deadline was used already: make a new one for each block")
        self._entered = True
        self._task = task
        self._cancelling = task.cancelling()
        virtual = of_thread.loop
        when_ns = self._ns if self._is_instant else now_ns() + self._ns
        if virtual is not None:
            self._timer = virtual.call_at_ns(when_ns, self._expire, event_class=EventClass.DEADLINE)
        else:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(_zero_s(loop) + when_ns / 1e9, self._expire)
        return self

    def _expire(self) -> None:
        self._expired = True
        self._task.cancel()

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        # Only a cancellation that is this deadline's own becomes a TimeoutError; anyone else's goes on.
        is_own = self._expired and self._task.uncancel() <= self._cancelling
        if is_own and isinstance(error, asyncio.CancelledError):
            raise TimeoutError("the deadline has passed") from error


def deadline_at(instant_s: float) -> Deadline:
    """Return a deadline at an instant of the loop's time, as an asynchronous context manager.

    The block under it is cancelled at that instant, and ``TimeoutError`` raised in its place. Work that
    ends exactly at the instant counts (``asyncio.timeout`` decides such ties by order of submission).

    Raises:
        ValueError: For NaN or an infinity.
    """
    return Deadline(instant_s, is_instant=True)


def deadline_after(seconds: float) -> Deadline:
    """Return a deadline so many seconds after the block is entered; see :func:`deadline_at`.

    Raises:
        ValueError: For NaN or an infinity.
    """
    return Deadline(seconds, is_instant=False)
