"""The tasks of a run: named, ended in the order in which they began, and none fails unheard."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import Any, Protocol, TypeVar

from fedsim.clock import running_loop, wait

T = TypeVar("T")


class Work(Protocol):
    """What goes on without a task: callbacks."""

    def cancel(self) -> object:
        """End it."""


class Tasks:
    """Tasks that live beside the main one, and other work; the first to fail ends the run."""

    def __init__(self) -> None:
        # A dictionary keeps the order of starting; a set would end tasks in the order of their addresses.
        self._tasks: dict[Work, None] = {}
        self._failure: asyncio.Future[None] = running_loop().create_future()

    def start(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Start a task."""
        task = running_loop().create_task(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    def add(self, work: Work) -> None:
        """Note work that has begun without a task, to be cancelled in its turn when the run ends."""
        self._tasks[work] = None

    def remove(self, work: Work) -> None:
        """Forget such work: it is over."""
        del self._tasks[work]

    def fail(self, error: BaseException) -> None:
        """End the run, unless something has failed before: such work has raised."""
        if not self._failure.done():
            self._failure.set_exception(error)

    def guarded(self, take: Callable[[T], object]) -> Callable[[T], None]:
        """Return a function that runs in the context of now, and whose failure ends the run."""
        context = copy_context()

        def guarded(item: T) -> None:
            try:
                context.run(take, item)
            except Exception as error:
                self.fail(error)

        return guarded

    async def until(self, main: Coroutine[Any, Any, T]) -> T:
        """Run the main work to its end, or until a task fails; then end all tasks; return its result.

        Raises:
            BaseException: What the main work or the first failing task raised.
        """
        task = running_loop().create_task(main, name="server")
        try:
            either: list[asyncio.Future[Any]] = [task, self._failure]
            await wait(either, wanted=1)
            if self._failure.done():
                self._failure.result()
            result = await task
        finally:
            await self._end(task)
        # A task that failed while it was being ended.
        if self._failure.done():
            self._failure.result()
        return result

    async def _end(self, main: asyncio.Task[Any]) -> None:
        rest: list[Work] = [main, *self._tasks]
        for work in rest:
            work.cancel()
        ended = running_loop().create_future()
        running_loop().call_soon(ended.set_result, None)  # behind what cancelled work has still to do
        await wait([ended, *(one for one in rest if isinstance(one, asyncio.Task))])
        # What is raised is raised by ``until``; nothing is left for asyncio to complain of.
        for future in (main, self._failure):
            if future.done() and not future.cancelled():
                future.exception()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()):
            self.fail(error)
