"""Handles: one callback waiting for its turn, and the classes of events within one instant.

They are subclasses of asyncio's handles, but lighter: a cancelled handle has no callback, and asyncio's
debugging fields stay empty. The loop makes them field by field (``__new__`` and assignments), which takes
half the time of a constructor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from enum import IntEnum
from typing import Any


class EventClass(IntEnum):
    """Which events of one instant run first; within a class the order is that of submission.

    Joins follow ordinary events, so whatever can start a training job at an instant has started it before
    the loop blocks for a result. Deadlines come last, so work that ends exactly at its deadline counts.
    """

    ORDINARY = 0
    JOIN = 1
    DEADLINE = 2


class Handle(asyncio.Handle):
    """A callback that runs at the current instant, after those queued before it."""

    __slots__ = ()

    _callback: Callable[..., object] | None
    _args: tuple[Any, ...]
    _context: Context

    def cancel(self) -> None:
        """Never run the callback; harmless when it has run or was cancelled before."""
        self._callback = None
        self._args = ()

    def cancelled(self) -> bool:
        """Whether :meth:`cancel` was called."""
        return self._callback is None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {'cancelled' if self.cancelled() else describe(self._callback)}>"


def describe(callback: object) -> str:
    """Name a callback for a report: its task, or its function."""
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return f"task {owner.get_name()!r} ({getattr(owner.get_coro(), '__qualname__', '?')})"
    function = getattr(callback, "func", callback)  # a partial hides what it calls
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if name is None:
        return type(function).__qualname__
    return f"{module}.{name}" if module else str(name)
