"""Waiting for several tasks, in an order that the program decides.

asyncio's ``wait``, ``as_completed`` and ``TaskGroup`` keep tasks in sets, which are ordered by memory
address: who is cancelled or reported first is an accident. These keep the order given. ``asyncio.gather``
is ordered already.
"""

from __future__ import annotations

import asyncio
from asyncio import ALL_COMPLETED, FIRST_COMPLETED, FIRST_EXCEPTION
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, MutableSet, Sequence
from functools import partial
from typing import Any, Self, TypeVar

from fedsim.clock.handles import EventClass
from fedsim.clock.loop import VirtualTimeLoop, to_ns

F = TypeVar("F", bound="asyncio.Future[Any]")


async def wait(
    tasks: Sequence[F], *, timeout: float | None = None, return_when: str = ALL_COMPLETED
) -> tuple[list[F], list[F]]:
    """Wait like ``asyncio.wait``, but give (done, pending) as lists in the order of ``tasks``.

    A timeout cancels nothing. What ends exactly at the timeout is done.

    Args:
        tasks: At least one future or task; not a set, and no bare coroutines.
        timeout: Seconds to wait at most; None for no limit.
        return_when: ``asyncio.ALL_COMPLETED``, ``FIRST_COMPLETED`` or ``FIRST_EXCEPTION``.

    Raises:
        TypeError, ValueError: For arguments other than these.
    """
    futures = _in_order(tasks)
    if not futures:
        raise ValueError("wait() was given no tasks: it would never return")
    if return_when not in (ALL_COMPLETED, FIRST_COMPLETED, FIRST_EXCEPTION):
        raise ValueError(
            f"return_when = {return_when!r}: use asyncio.ALL_COMPLETED, FIRST_COMPLETED or FIRST_EXCEPTION"
        )
    pending = sum(not future.done() for future in futures)
    if pending and not any(_ends_wait(future, return_when) for future in futures if future.done()):
        await _wait_for_enough(futures, pending, timeout, return_when)
    return [f for f in futures if f.done()], [f for f in futures if not f.done()]


async def _wait_for_enough(
    futures: Sequence[asyncio.Future[Any]], pending: int, timeout: float | None, return_when: str
) -> None:
    loop = asyncio.get_running_loop()
    waiter = loop.create_future()

    def release() -> None:
        if not waiter.done():
            waiter.set_result(None)

    def one_is_done(future: asyncio.Future[Any]) -> None:
        nonlocal pending
        pending -= 1
        if not pending or _ends_wait(future, return_when):
            release()

    timer: asyncio.TimerHandle | None = None
    if timeout is not None and isinstance(loop, VirtualTimeLoop):
        timer = loop.call_at_ns(loop.now_ns + to_ns(timeout), release, event_class=EventClass.DEADLINE)
    elif timeout is not None:
        timer = loop.call_later(timeout, release)
    watched = [future for future in futures if not future.done()]
    for future in watched:
        future.add_done_callback(one_is_done)
    try:
        await waiter
    finally:
        if timer is not None:
            timer.cancel()
        for future in watched:
            future.remove_done_callback(one_is_done)


def _ends_wait(future: asyncio.Future[Any], return_when: str) -> bool:
    """Say whether this future's end alone ends the wait."""
    if return_when == FIRST_EXCEPTION:
        return not future.cancelled() and future.exception() is not None
    return return_when == FIRST_COMPLETED


def _in_order(tasks: Iterable[F]) -> list[F]:
    """Return the tasks once each, in order; refuse what has no order or cannot be waited for."""
    if isinstance(tasks, set | frozenset):
        raise TypeError("tasks are in a set, which has no order: give a list or a tuple")
    futures = list(dict.fromkeys(tasks))
    for future in futures:
        if not asyncio.isfuture(future):
            raise TypeError(f"{future!r} is not a future: make a task of a coroutine first")
    return futures


class _Completions(AsyncIterator[F]):
    """Futures as they are completed; see :func:`as_completed`."""

    def __init__(self, futures: list[F]) -> None:
        self._left = len(futures)
        self._completed: deque[F] = deque()
        self._waiter: asyncio.Future[None] | None = None
        for future in futures:
            if future.done():
                self._completed.append(future)
            else:
                future.add_done_callback(partial(_Completions._add, self, future))

    def _add(self, future: F, _: object) -> None:
        self._completed.append(future)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> F:
        if not self._left:
            raise StopAsyncIteration
        while not self._completed:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        self._left -= 1
        return self._completed.popleft()


def as_completed(tasks: Sequence[F]) -> AsyncIterator[F]:
    """Give the tasks one by one as they end, to ``async for``.

    Those that have ended already come first, in the order given; the others in the order in which they end.
    Only one consumer may iterate. For a limit in time, put the loop under ``deadline_after``.

    Raises:
        TypeError: For a set, or for what is not a future.
    """
    return _Completions(_in_order(tasks))


class _OrderedSet(MutableSet[Any]):
    """A set that iterates in the order of insertion."""

    def __init__(self) -> None:
        self._items: dict[Any, None] = {}

    def __contains__(self, item: object) -> bool:
        return item in self._items

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def add(self, value: Any) -> None:
        self._items[value] = None

    def discard(self, value: Any) -> None:
        self._items.pop(value, None)


class TaskGroup(asyncio.TaskGroup):  # noqa: TID251
    """``asyncio.TaskGroup`` that, when one task fails, cancels the others in the order of their creation."""

    def __init__(self) -> None:
        super().__init__()
        # asyncio only adds to, discards from, counts and iterates over this field; a test watches that.
        self._tasks = _OrderedSet()  # type: ignore[assignment]
