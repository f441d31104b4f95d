"""Runs client hooks step by step: a hook is a coroutine that yields job requests.

A driver decides what a request means: it takes virtual time (``virtual_driver.py``), real time (``host.py``),
or none, for a forecast (``forecast.py``) and for the observer (``runtime/evaluation.py``).
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from fedsim.algorithms.contexts import Warn
from fedsim.bus import Header
from fedsim.engine.kept_optimisers import Keeping
from fedsim.engine.requests import JobRequest
from fedsim.params import Tree
from fedsim.runtime.hook_results import foreign_await
from fedsim.wire import Message
from fedsim.wire.coded_messages import EncodedMessage

if TYPE_CHECKING:
    from fedsim.runtime.clients.leading_hook import LeadingHook

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


class Turn(HookSteps):
    """The work of a client for one dispatch: a hook.

    The hook may go on beforehand (:meth:`go_on_ahead`). Then :meth:`go_on` repeats what it did, step by step:
    no hook runs twice, and the lines of the log are in the order of virtual time.

    Args:
        header: Of the dispatch.
        state: What the client holds before.
        keeping: What its optimisers go on from; afterwards what they have come to.
        is_copy: Whether it runs on copies, under ``verify``; then it writes nothing to the log.
        begin: Given this object, returns the coroutine; called when the hook begins.
        name: The hook, for an error.

    Attributes:
        results: Of the request that :meth:`go_on` has returned, if its jobs have been done beforehand.
        asked: What the hook asked for beforehand, step by step; None where it ended.
        done: The results of these requests. Whoever lets the hook go on appends them.
        leading: Observes the hook if it may run for several clients.
        received: What the client has received, decoded.
        residuals: What codecs have left out of earlier replies.
        encoded: The reply as it travels, once it is encoded.
    """

    is_past = False
    """Whether the hook ran in another process, and only its time passes here."""

    __slots__ = (
        "_error",
        "_is_ahead",
        "_notes",
        "_num_repeated",
        "asked",
        "done",
        "encoded",
        "header",
        "is_copy",
        "keeping",
        "leading",
        "received",
        "residuals",
        "results",
        "state",
    )

    def __init__(
        self,
        header: Header,
        state: Any,
        keeping: Keeping | None,
        begin: Callable[[Turn], Coroutine[Any, Any, Any]],
        name: Any,
        *,
        is_copy: bool = False,
    ) -> None:
        super().__init__(partial(begin, self), name)
        self.header = header
        self.state = state
        self.keeping = keeping
        self.is_copy = is_copy
        self.results: list[Any] | None = None
        self.asked: list[JobRequest | None] = []
        self.done: list[list[Any]] = []
        self.leading: LeadingHook | None = None
        self.received: Message | None = None
        self.residuals: Mapping[str, Tree] = {}
        self.encoded: EncodedMessage | None = None
        self._error: BaseException | None = None
        self._is_ahead = False
        self._notes: dict[int, list[Note]] = {}  # by step
        self._num_repeated = 0

    @property
    def reply(self) -> Any:
        """What the hook sends, once it has ended."""
        return self.result[1]

    def note(self, log: Warn, event: str, **values: Any) -> None:
        """Write to the log, or keep the line until the hook's work is repeated."""
        if self.is_copy:
            return
        if self._is_ahead:
            self._notes.setdefault(len(self.asked), []).append((log, event, values))
        else:
            log(event, client=self.header.receiver, **values)

    def go_on(
        self, results: list[Any] | None = None, error: BaseException | None = None
    ) -> JobRequest | None:
        """Do what :meth:`HookSteps.go_on` does."""
        number = self._num_repeated
        if number == len(self.asked):
            self._is_ahead, self.results = False, None
            return super().go_on(results, error)
        self._num_repeated = number + 1
        self.write_notes(number)
        if number == len(self.asked) - 1 and self._error is not None:
            raise self._error
        self.results = self.done[number] if number < len(self.done) else None
        return self.asked[number]

    def go_on_ahead(self) -> JobRequest | None:
        """Let the hook go on before its time, with the last results of ``done``.

        Raises:
            Exception: As :meth:`go_on`, which raises it again.
        """
        self._is_ahead, request = True, None
        try:
            request = super().go_on(self.done[-1] if self.done else None)
        except (Exception, asyncio.CancelledError) as error:
            self._error = error
            raise
        finally:
            self.asked.append(request)
        return request

    @property
    def has_left_notes(self) -> bool:
        """Whether any such step left lines for the log."""
        return bool(self._notes)

    def has_notes(self, number: int) -> bool:
        """Whether a step that was done beforehand left lines for the log."""
        return number in self._notes

    def write_notes(self, number: int) -> None:
        """Write these lines now."""
        for log, event, values in self._notes.pop(number, ()):
            log(event, client=self.header.receiver, **values)

    def forget_ahead(self) -> None:
        """Forget the steps that were done beforehand: by the client's context they hold this object."""
        self.asked.clear()
        self.done.clear()
        self.leading = None
        self._num_repeated = 0

    def cancel(self) -> None:
        """Give the work up."""
        self.forget_ahead()
        super().cancel()
