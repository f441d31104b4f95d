"""Reading the clock, sleeping and waiting; each also works on a real asyncio loop.

Code that is written with these runs unchanged over the aiohttp bus, where the loop's own clock takes the
place of virtual time (and where the classes of events within one instant have no meaning). The clock of a
real loop starts at an arbitrary value; :func:`start_clock` sets it to 0.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from math import inf
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from fedsim.clock.handles import EventClass
from fedsim.clock.loop import VirtualTimeLoop, of_thread, to_ns

F = TypeVar("F", bound="asyncio.Future[Any]")

_started_s: WeakKeyDictionary[asyncio.AbstractEventLoop, float] = WeakKeyDictionary()
"""By real loop, its clock at the instant that :func:`now_s` calls 0."""


def start_clock(at_ns: int = 0) -> None:
    """Set the clock of the running loop, a real one."""
    if of_thread.loop is not None:
        raise RuntimeError("virtual time starts at 0 by itself, and nothing can set it back")
    loop = asyncio.get_running_loop()
    _started_s[loop] = loop.time() - at_ns / 1e9


def running_loop() -> asyncio.AbstractEventLoop:
    """Return the running loop, as :func:`asyncio.get_running_loop` does, but faster on virtual time."""
    return of_thread.loop or asyncio.get_running_loop()


def now_ns() -> int:
    """Return the running loop's time in whole nanoseconds."""
    virtual = of_thread.loop
    return virtual.now_ns if virtual is not None else int(now_s() * 1e9)


def now_s() -> float:
    """Return the running loop's time in seconds."""
    virtual = of_thread.loop
    if virtual is not None:
        return virtual.now_ns / 1_000_000_000
    loop = asyncio.get_running_loop()
    return loop.time() - _started_s.get(loop, 0.0)


def call_after(
    seconds: float, callback: Callable[..., object], *args: Any, event_class: EventClass = EventClass.ORDINARY
) -> asyncio.TimerHandle:
    """Schedule ``callback(*args)`` after a duration; the handle's ``cancel`` prevents it."""
    virtual = of_thread.loop
    if virtual is not None:
        when_ns = virtual.now_ns + to_ns(seconds)
        return virtual.call_at_ns(when_ns, callback, *args, event_class=event_class)
    return asyncio.get_running_loop().call_later(seconds, callback, *args)


async def sleep_for(seconds: float) -> None:
    """Sleep for a duration; even if it is 0 or negative, whatever is runnable runs first."""
    loop = of_thread.loop
    if loop is not None:
        await _sleep_until_ns(loop, loop.now_ns + to_ns(seconds))
    else:
        to_ns(seconds)  # the same numbers are refused on either loop
        await asyncio.sleep(seconds)


async def sleep_until(seconds: float) -> None:
    """Sleep until an instant of the loop's time; one that is past is now."""
    loop = of_thread.loop
    if loop is not None:
        await _sleep_until_ns(loop, to_ns(seconds))
    else:
        to_ns(seconds)
        await asyncio.sleep(seconds - now_s())


async def end_of_instant() -> None:
    """Wait until all events of this instant but deadlines have run; on a real loop, yield once."""
    future = running_loop().create_future()
    timer = call_after(0, future.set_result, None, event_class=EventClass.DEADLINE)
    try:
        await future
    finally:
        timer.cancel()


async def _sleep_until_ns(loop: VirtualTimeLoop, when_ns: int) -> None:
    future = loop.create_future()
    # A cancelled sleeper runs, and cancels its timer, before any other timer: nothing can be set twice.
    timer = loop.call_at_ns(when_ns, future.set_result, None)
    try:
        await future
    finally:
        timer.cancel()


async def wait(
    futures: Sequence[F],
    *,
    timeout: float | None = None,
    wanted: float = inf,
    counts: Callable[[F], bool] = asyncio.Future.done,
) -> bool:
    """Wait until ``wanted`` futures are done and count, or all are done; return False at a timeout.

    A timeout cancels nothing, and what ends exactly at the timeout is done. ``asyncio.wait`` keeps futures in
    sets, which are ordered by memory address, and decides such ties by order of submission.
    """
    if timeout is None and wanted >= len(futures):  # wait for all
        # One after the other: the later ones are mostly done by then.
        for future in futures:
            if not future.done():
                await _wait_for(future)
        return True
    watched = [future for future in futures if not future.done()]
    num_pending = len(watched)
    missing = wanted - sum(counts(future) for future in futures if future.done())
    if not num_pending or missing <= 0:
        return True
    waiter: asyncio.Future[bool] = running_loop().create_future()

    def end(is_enough: bool) -> None:
        if not waiter.done():
            waiter.set_result(is_enough)

    def one_is_done(future: F) -> None:
        nonlocal num_pending, missing
        num_pending -= 1
        missing -= counts(future)
        if not num_pending or missing <= 0:
            end(True)

    timer = None if timeout is None else call_after(timeout, end, False, event_class=EventClass.DEADLINE)
    for future in watched:
        future.add_done_callback(one_is_done)
    try:
        return await waiter
    finally:
        if timer is not None:
            timer.cancel()
        for future in watched:
            future.remove_done_callback(one_is_done)


async def _wait_for(future: asyncio.Future[Any]) -> None:
    """Wait until a future is done, whatever it holds."""
    waiter: asyncio.Future[None] = running_loop().create_future()

    def end(_: object) -> None:
        if not waiter.done():
            waiter.set_result(None)

    future.add_done_callback(end)
    try:
        await waiter
    finally:
        future.remove_done_callback(end)
