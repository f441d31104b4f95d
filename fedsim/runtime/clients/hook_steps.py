"""Runs client hooks step by step: a hook is a coroutine that yields job requests.

A driver decides what a request means: it takes virtual time (``virtual_driver.py``), real time (``host.py``),
or none, for a forecast (``forecast.py``) and for the observer (``runtime/evaluation.py``).
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from fedsim.algorithms.contexts import Warn
from fedsim.bus import Header
from fedsim.engine.kept_optimisers import Keeping
from fedsim.engine.requests import JobRequest
from fedsim.runtime.hook_results import foreign_await

Note = tuple[Warn, str, dict[str, Any]]
"""A line for the log: where it goes, the event, its values."""


class HookSteps:
    """A hook at work.

    Args:
        begin: Returns the coroutine; called when the hook begins.
        name: The hook, for an error.

    Attributes:
        result: What the hook has returned, once it has ended.
    """

    __slots__ = ("_begin", "_hook", "_name", "result")

    def __init__(self, begin: Callable[[], Coroutine[Any, Any, Any]], name: Any) -> None:
        self._begin: Callable[[], Coroutine[Any, Any, Any]] | None = begin
        self._hook: Coroutine[Any, Any, Any] | None = None  # a coroutine that never began would be warned of
        self._name = name
        self.result: Any = None

    def go_on(
        self, results: list[Any] | None = None, error: BaseException | None = None
    ) -> JobRequest | None:
        """Let the hook go on with the results of its last request; return its next one, None at its end.

        Args:
            results: The results; None at first.
            error: What the jobs raised instead.

        Raises:
            RunError: The hook awaited something else than a call of its context.
            Exception: What the hook raises.
        """
        if self._begin is not None:
            self._hook, self._begin = self._begin(), None  # which may refer to what refers to this
        if self._hook is None:
            raise RuntimeError("a hook that was given up does not go on")
        try:
            request = self._hook.send(results) if error is None else self._hook.throw(error)
        except StopIteration as end:
            self.result = end.value
            return None
        if not isinstance(request, JobRequest):
            self._hook.close()
            raise foreign_await(self._name, request)
        return request

    def cancel(self) -> None:
        """Raise ``CancelledError`` where the hook waits, if it has not ended; it cannot wait again."""
        self._begin = None
        if self._hook is None or inspect.getcoroutinestate(self._hook) == inspect.CORO_CLOSED:
            return
        try:
            self._hook.throw(asyncio.CancelledError())
        except (StopIteration, asyncio.CancelledError):
            return
        self._hook.close()


async def drive(steps: HookSteps, perform: Callable[[JobRequest], Awaitable[list[Any]]]) -> Any:
    """Run a hook in a task; return what it returns.

    Args:
        steps: The hook.
        perform: Does the jobs of a request. What it raises is raised in the hook.
    """
    request = steps.go_on()
    while request is not None:
        try:
            results = await perform(request)
        except BaseException as error:
            request = steps.go_on(error=error)
        else:
            request = steps.go_on(results)
    return steps.result


@dataclass(slots=True)
class _Step:
    """What a hook did beforehand when it was let go on.

    Attributes:
        notes: Lines for the log.
        request: What it asked for then; None where it ended.
        error: What it raised instead.
        results: Of the request, once they are there.
    """

    notes: list[Note]
    request: JobRequest | None = None
    error: BaseException | None = None
    results: list[Any] | None = None


@dataclass(slots=True, eq=False)
class Turn:
    """The work of a client for one dispatch.

    The hook may go on beforehand (:meth:`go_on_ahead`). Then :meth:`go_on` repeats what it did, step by step:
    no hook runs twice, and the lines of the log are in the order of virtual time.

    Attributes:
        header: Of the dispatch.
        state: What the client holds before.
        keeping: What its optimisers go on from; afterwards what they have come to.
        is_copy: Whether it runs on copies, under ``verify``; then it writes nothing to the log.
        steps: The hook.
        results: Of the request that :meth:`go_on` has returned, if its jobs have been done beforehand.
        ahead: The steps that were done beforehand; whoever lets the hook go on sets their results.
    """

    header: Header
    state: Any
    keeping: Keeping | None
    is_copy: bool = False
    steps: HookSteps = field(init=False)
    results: list[Any] | None = field(default=None, init=False)
    ahead: deque[_Step] = field(default_factory=deque, init=False)
    _notes: list[Note] | None = field(default=None, init=False)

    @property
    def reply(self) -> Any:
        """What the hook sends, once it has ended."""
        return self.steps.result[1]

    def note(self, log: Warn, event: str, **values: Any) -> None:
        """Write to the log, or keep the line until the hook's work is repeated."""
        if self.is_copy:
            return
        if self._notes is None:
            log(event, client=self.header.receiver, **values)
        else:
            self._notes.append((log, event, values))

    def go_on(
        self, results: list[Any] | None = None, error: BaseException | None = None
    ) -> JobRequest | None:
        """Do what :meth:`HookSteps.go_on` does."""
        if not self.ahead:
            self._notes = self.results = None
            return self.steps.go_on(results, error)
        step = self.ahead.popleft()
        for log, event, values in step.notes:
            log(event, client=self.header.receiver, **values)
        if step.error is not None:
            raise step.error
        self.results = step.results
        return step.request

    def go_on_ahead(self) -> JobRequest | None:
        """Let the hook go on before its time, with the results of the last step in ``ahead``.

        Raises:
            Exception: As :meth:`go_on`, which raises it again.
        """
        last = self.ahead[-1].results if self.ahead else None
        step = _Step([])
        self.ahead.append(step)
        self._notes = step.notes
        try:
            step.request = self.steps.go_on(last)
        except (Exception, asyncio.CancelledError) as error:
            step.error = error
            raise
        return step.request

    def write_ahead(self, number: int) -> None:
        """Write the lines of a step that was done beforehand now."""
        for log, event, values in self.ahead[number].notes:
            log(event, client=self.header.receiver, **values)

    def forget_ahead(self) -> None:
        """Forget the steps that were done beforehand: by the client's context they hold this object."""
        self.ahead.clear()

    def cancel(self) -> None:
        """Give the work up."""
        self.ahead.clear()
        self.steps.cancel()
