"""The duties of an asyncio loop that have nothing to do with time: making tasks, and reporting errors.

Two things differ from asyncio. Tasks without a name are numbered per loop, not per process, so a report names
the same tasks in every run. And an error that reaches the loop is kept as well as logged.
"""

import asyncio
import logging
from collections.abc import Coroutine, Generator
from contextvars import Context
from typing import Any, TypeVar

from fedsim.clock.refusals import RefusingLoop

T = TypeVar("T")

_log = logging.getLogger(__name__)


class ServingLoop(RefusingLoop):
    """The part of the loop that makes tasks and futures and looks after their errors.

    Attributes:
        unseen_errors: Exceptions reported to the loop that no code has dealt with, in order of report.
    """

    def __init__(self) -> None:
        self.unseen_errors: list[BaseException] = []
        self._debug = False
        self._tasks_made = 0

    # ---- futures and tasks

    def create_future(self) -> asyncio.Future[Any]:
        """Return a new future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        """Return a new task that starts as soon as its turn comes; without a name it is ``Task-<n>``.

        Raises:
            RuntimeError: When the loop is closed.
        """
        if self.is_closed():
            raise RuntimeError("Event loop is closed")
        self._tasks_made += 1
        if name is None:
            name = f"Task-{self._tasks_made}"
        return asyncio.Task(coro, loop=self, name=name, context=context)

    # ---- errors

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Log an error that nobody else sees, and keep its exception in :attr:`unseen_errors`."""
        error = context.get("exception")
        details = "".join(
            f"\n  {key}: {value!r}"
            for key, value in sorted(context.items())
            if key not in ("message", "exception")
        )
        message = context.get("message") or "unhandled error in the event loop"
        _log.error("%s%s", message, details, exc_info=error)
        if error is not None:
            self.unseen_errors.append(error)

    def get_debug(self) -> bool:
        """Say whether asyncio's debug mode is on: futures and tasks then remember where they were made."""
        return self._debug

    def set_debug(self, enabled: bool) -> None:
        """Turn asyncio's debug mode on or off."""
        self._debug = enabled

    # ---- what asyncio.Runner asks for at its end, and there is nothing to do about

    async def shutdown_asyncgens(self) -> None:
        """Do nothing: a generator that nobody holds any more is closed as any other object."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Do nothing: there is no executor."""
