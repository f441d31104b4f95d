"""The duties of an asyncio loop that have nothing to do with time: tasks, errors, asynchronous generators.

They behave as in asyncio, with two differences. Tasks without a name are numbered per loop, not per
process, so a report names the same tasks in every run. And an error that reaches the loop is kept as well
as logged.
"""

import asyncio
import logging
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextvars import Context
from threading import get_ident
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from fedsim.clock.refusals import RefusingLoop

T = TypeVar("T")
ErrorContext = dict[str, Any]

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
        self._task_factory: Any = None
        self._exception_handler: Any = None
        self._asyncgens: WeakValueDictionary[int, AsyncGenerator[Any, Any]] = WeakValueDictionary()
        self._asyncgens_seen = 0
        self._orphaned_asyncgens: list[AsyncGenerator[Any, Any]] = []
        self._owner = get_ident()  # the one thread that may schedule
        self._old_asyncgen_hooks = sys.get_asyncgen_hooks()

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
        if self._task_factory is None:
            return asyncio.Task(coro, loop=self, name=name, context=context)
        options = {} if context is None else {"context": context}
        task: asyncio.Task[T] = self._task_factory(self, coro, **options)
        if isinstance(task, asyncio.Task):
            task.set_name(name)
        return task

    def set_task_factory(self, factory: Any) -> None:
        """Make tasks by ``factory(loop, coroutine, **options)``; None for asyncio's own."""
        if factory is not None and not callable(factory):
            raise TypeError(f"task factory {factory!r} is neither callable nor None")
        self._task_factory = factory

    def get_task_factory(self) -> Any:
        """Return what makes tasks, or None."""
        return self._task_factory

    # ---- errors

    def set_exception_handler(self, handler: Callable[..., object] | None) -> None:
        """Hand errors to ``handler(loop, context)``, those of callbacks too; None for the default.

        With a handler, a callback that raises does not end the run.
        """
        if handler is not None and not callable(handler):
            raise TypeError(f"exception handler {handler!r} is neither callable nor None")
        self._exception_handler = handler

    def get_exception_handler(self) -> Any:
        """Return the handler, or None for the default."""
        return self._exception_handler

    def default_exception_handler(self, context: ErrorContext) -> None:
        """Log the error, and keep its exception in :attr:`unseen_errors`."""
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

    def call_exception_handler(self, context: ErrorContext) -> None:
        """Report an error that nobody else sees: to the handler if one is set, else to the default."""
        if self._exception_handler is None:
            self.default_exception_handler(context)
            return
        try:
            self._exception_handler(self, context)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            self.default_exception_handler(
                {"message": "error in the exception handler", "exception": error, "context": context}
            )

    def get_debug(self) -> bool:
        """Say whether asyncio's debug mode is on: futures and tasks then remember where they were made."""
        return self._debug

    def set_debug(self, enabled: bool) -> None:
        """Turn asyncio's debug mode on or off."""
        self._debug = enabled

    # ---- asynchronous generators and the executor that is not there

    def _install_asyncgen_hooks(self) -> None:
        self._old_asyncgen_hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=self._note_asyncgen, finalizer=self._finalise_asyncgen)

    def _restore_asyncgen_hooks(self) -> None:
        sys.set_asyncgen_hooks(*self._old_asyncgen_hooks)

    def _note_asyncgen(self, generator: AsyncGenerator[Any, Any]) -> None:
        self._asyncgens_seen += 1
        self._asyncgens[self._asyncgens_seen] = generator

    def _finalise_asyncgen(self, generator: AsyncGenerator[Any, Any]) -> None:
        """Close a generator that nobody holds any more, as soon as its turn comes."""
        if self.is_closed():
            return
        if get_ident() == self._owner:
            self.call_soon(self.create_task, generator.aclose())
        else:
            # The collector found it while a worker thread ran, an accident: it waits for the end of the run.
            self._orphaned_asyncgens.append(generator)

    async def shutdown_asyncgens(self) -> None:
        """Close every asynchronous generator that was started and not finished, in order of start."""
        generators = [*self._asyncgens.values(), *self._orphaned_asyncgens]
        self._asyncgens.clear()
        self._orphaned_asyncgens.clear()
        for generator in generators:
            try:
                await generator.aclose()
            except Exception as error:
                self.call_exception_handler(
                    {
                        "message": "closing an asynchronous generator failed",
                        "exception": error,
                        "asyncgen": generator,
                    }
                )

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Do nothing: there is no executor."""
