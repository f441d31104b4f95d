"""An asyncio event loop whose time is a number.

Virtual time starts at 0 and is an integer count of nanoseconds. It stands still while anything is runnable,
then jumps to the earliest scheduled event. Scheduled events run in the order (instant, event class,
submission); after each one everything that it made runnable runs, in order, before the next. There is no
selector, no thread and no host clock, so the order of events is a function of the program alone.

A callback that raises ends the run with its exception, because nobody else would see it (asyncio only logs
it). Every other report to the loop, such as that of a task whose exception nobody retrieved, is logged and
kept in ``unseen_errors``, on which :func:`fedsim.clock.run` acts.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from contextvars import Context, copy_context
from heapq import heapify, heappop, heappush
from threading import get_ident, local
from typing import Any, Never, TypeVar, TypeVarTuple, Unpack, cast

from fedsim.clock.base_loop import BaseLoop
from fedsim.clock.handles import EventClass, Handle, describe
from fedsim.clock.stall_reports import deadlock_report, livelock_report, natural_name
from fedsim.errors import DeadlockError, LivelockError, VirtualTimeError

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

LIVELOCK_LIMIT = 1_000_000
"""Events at one instant beyond which a run counts as spinning."""

_WATCHED_EVENTS = 10_000  # how many of the last events before the limit are tallied for the report
_FEW_CANCELLED = 64  # below this, cancelled timers are not worth a compaction
_NOBODY = -1  # the owner of a closed loop: no thread has this identity


class _OfThread(local):
    """The virtual-time loop that runs in a thread, which every dispatch reads many times.

    ``asyncio.get_running_loop`` takes three times as long: up to Python 3.11 it makes a system call.
    """

    loop: VirtualTimeLoop | None = None


of_thread = _OfThread()


class _StoppedError(BaseException):
    """Ends the inner loop; raised by the handle that :meth:`VirtualTimeLoop.stop` queues."""


def _raise_stopped() -> Never:
    raise _StoppedError


def to_ns(seconds: float) -> int:
    """Return whole nanoseconds, rounded to nearest."""
    try:
        return round(seconds * 1e9)
    except (ValueError, OverflowError):
        raise ValueError(
            f"{seconds!r} s is no instant or duration of virtual time: write a finite number"
        ) from None


class Timer(Handle, asyncio.TimerHandle):
    """A callback that runs at a set instant, within its event class."""

    __slots__ = ()

    _loop: VirtualTimeLoop
    _scheduled: bool  # whether the heap still holds it
    _when: int  # nanoseconds, where asyncio keeps seconds

    def cancel(self) -> None:
        """Never run the callback; harmless when it has run or was cancelled before."""
        if self._callback is not None:
            self._callback = None
            self._args = ()
            if self._scheduled:
                self._loop._note_cancelled_timer()

    def when(self) -> float:
        """Return the instant in seconds of virtual time."""
        return self._when / 1_000_000_000

    # Two timers are the same only if they are one object, and the heap orders keys, not timers.
    __eq__ = object.__eq__
    __hash__ = object.__hash__


class VirtualTimeLoop(BaseLoop):
    """An asyncio loop on virtual time, without input, output, threads and signals; ``now_ns`` is its time.

    ``before`` is called before the clock moves, with the instant and the class of the next event. It records
    what was computed beforehand, and may set the clock to instants up to that.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now_ns = 0
        self.before: Callable[[int, int], object] | None = None
        self._heap: list[tuple[int, int, int, Timer]] = []
        self._turns = 0
        self._cancelled_timers = 0
        self._ready: deque[Handle] = deque()
        self._events_run = 0
        self._watch_from = LIVELOCK_LIMIT - _WATCHED_EVENTS
        self._tally: Counter[str] = Counter()
        self._running = False
        self._closed = False
        self._stop_handle: Handle | None = None
        self._owner = get_ident()  # the one thread that may schedule

    # ---- time and scheduling

    @property
    def events_run(self) -> int:
        """Callbacks run so far, as of the last time that none was runnable."""
        return self._events_run

    def time(self) -> float:
        """Return virtual time in seconds, the nearest float to :attr:`now_ns`."""
        return self.now_ns / 1_000_000_000

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> Handle:
        """Queue ``callback`` at the current instant, behind all that is runnable."""
        if get_ident() != self._owner:
            self._refuse_caller("call_soon")
        # Every step of a task passes here. Filling fields costs half of what a constructor would.
        handle = Handle.__new__(Handle)
        handle._callback = callback
        handle._args = args
        handle._context = copy_context() if context is None else context
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> Handle:
        """Do what :meth:`call_soon` does: other threads are refused here too."""
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> Timer:
        """Schedule ``callback`` ``delay`` seconds from now, to the nanosecond; a negative delay is 0."""
        when_ns = self.now_ns + to_ns(delay)
        return self.call_at_ns(when_ns, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> Timer:
        """Schedule ``callback`` at ``when`` seconds of virtual time; an instant that is past is now."""
        return self.call_at_ns(to_ns(when), callback, *args, context=context)

    def call_at_ns(
        self,
        when_ns: int,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        event_class: EventClass = EventClass.ORDINARY,
        turn: int | None = None,
        context: Context | None = None,
    ) -> Timer:
        """Schedule ``callback`` at an instant; :meth:`take_turn` gives ``turn``, its place in its class."""
        if get_ident() != self._owner:
            self._refuse_caller("call_at")
        if when_ns < self.now_ns:
            when_ns = self.now_ns
        timer = Timer.__new__(Timer)
        timer._callback = callback
        timer._args = args
        timer._context = copy_context() if context is None else context
        timer._loop = self
        timer._scheduled = True
        timer._when = when_ns
        if turn is None:
            self._turns = turn = self._turns + 1
        # Tuples of integers are compared in C, and never beyond the turn, which is unique.
        heappush(self._heap, (when_ns, event_class, turn, timer))
        return timer

    def take_turn(self) -> int:
        """Return a place in the order of submission for a later :meth:`call_at_ns`."""
        self._turns += 1
        return self._turns

    def is_quiet_until(
        self, when_ns: int, *, apart_from: EventClass | None = None, num_runnable: int = 0
    ) -> bool:
        """Return whether nothing happens up to an instant, itself included.

        Events of the class ``apart_from`` do not count, nor do ``num_runnable`` callbacks that can run now.
        """
        if sum(handle._callback is not None for handle in self._ready) > num_runnable:
            return False
        return not any(
            at_ns <= when_ns and event_class != apart_from and timer._callback is not None
            for at_ns, event_class, _, timer in self._heap
        )

    def _refuse_caller(self, method: str) -> None:
        if self._closed:
            raise RuntimeError("Event loop is closed")
        raise VirtualTimeError(
            f"{method}() was called from a thread that does not run the virtual-time loop, so when it "
            "lands would depend on the host: submit a training job through the engine, which joins it then"
        )

    def _note_cancelled_timer(self) -> None:
        """Count a cancelled timer, and drop them all once they are more than half of the heap."""
        self._cancelled_timers += 1
        heap = self._heap
        if self._cancelled_timers > _FEW_CANCELLED and 2 * self._cancelled_timers > len(heap):
            # In place, because the inner loop holds the list. Keys are unique, so the order cannot change.
            heap[:] = [entry for entry in heap if entry[3]._callback is not None]
            heapify(heap)
            self._cancelled_timers = 0

    # ---- running

    def run_forever(self) -> None:
        """Run until :meth:`stop`."""
        self._take_over()
        self._running = True
        try:
            asyncio._set_running_loop(self)
            of_thread.loop = self
            self._run_events()
        except _StoppedError:
            pass
        finally:
            if self._stop_handle is not None:
                self._stop_handle.cancel()
                self._stop_handle = None
            self._running = False
            of_thread.loop = None
            asyncio._set_running_loop(None)

    def _run_events(self) -> None:
        """Run events until one raises, the only way out; :meth:`stop` queues one that does."""
        # Every event of a run passes here, so whatever is read for each is a local variable, and there is no
        # test for the end: an exception costs nothing until it is raised.
        ready, heap, popleft = self._ready, self._heap, self._ready.popleft
        events, watch_from = self._events_run, self._watch_from
        try:
            while True:
                while ready:
                    handle = popleft()
                    callback = handle._callback
                    if callback is not None:  # a cancelled one stays queued: removing it would cost more
                        events += 1
                        handle._context.run(callback, *handle._args)
                        if events > watch_from:
                            self._watch(callback, events)
                while heap:  # until the first timer that is not cancelled
                    when_ns, event_class, _, timer = heappop(heap)
                    timer._scheduled = False
                    callback = timer._callback
                    if callback is not None:
                        break
                    self._cancelled_timers -= 1
                else:
                    raise DeadlockError(deadlock_report(self.time(), self.pending_tasks()))
                if when_ns != self.now_ns:
                    if self.before is not None:
                        self.before(when_ns, event_class)
                    self.now_ns = when_ns
                    # So that one comparison per event is enough to start the tally, and to stop at the limit.
                    self._watch_from = watch_from = events + LIVELOCK_LIMIT - _WATCHED_EVENTS
                    if self._tally:
                        self._tally.clear()
                self._events_run = events = events + 1
                timer._context.run(callback, *timer._args)
                if events > watch_from:
                    self._watch(callback, events)
                del timer  # and with it what it was given, which may be large
        finally:
            self._events_run = events

    def _watch(self, callback: Callable[..., object], events: int) -> None:
        """Tally the last events before the livelock limit, and raise at the limit."""
        self._tally[describe(callback)] += 1
        if events > self._watch_from + _WATCHED_EVENTS:
            raise LivelockError(livelock_report(self.time(), LIVELOCK_LIMIT, self._tally))

    def run_until_complete(self, future: Generator[Any, None, T] | Awaitable[T]) -> T:
        """Run until a future, or the task of a coroutine, is done, and return its result."""
        self._take_over()
        is_new = not asyncio.isfuture(future)
        waited = asyncio.ensure_future(cast("Awaitable[T]", future), loop=self)
        if is_new:
            # Whoever interrupts the run knows that this one is pending; asyncio's base loop does the same.
            waited._log_destroy_pending = False  # type: ignore[attr-defined]
        waited.add_done_callback(_stop_when_done)
        try:
            self.run_forever()
        except BaseException:
            if is_new and waited.done() and not waited.cancelled():
                waited.exception()  # it is on its way out already: not "never retrieved"
            raise
        finally:
            waited.remove_done_callback(_stop_when_done)
        if not waited.done():
            raise RuntimeError("Event loop stopped before Future completed.")
        return waited.result()

    def stop(self) -> None:
        """Return from the run once all that was queued before this call has run."""
        if self._stop_handle is None:
            self._stop_handle = self.call_soon(_raise_stopped)

    def close(self) -> None:
        """Forget everything that is queued or scheduled, for good; harmless when closed."""
        if self._running:
            raise RuntimeError("Cannot close a running event loop")
        self._closed = True
        self._owner = _NOBODY
        self._ready.clear()
        self._heap.clear()

    def pending_tasks(self) -> list[asyncio.Task[Any]]:
        """Return this loop's unfinished tasks by name, ``Task-9`` before ``Task-10``."""
        return sorted(asyncio.all_tasks(self), key=natural_name)

    def is_running(self) -> bool:
        """Whether events are being run."""
        return self._running

    def is_closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._closed

    def _take_over(self) -> None:
        """Make this thread the one that runs the loop, and so the only one that may schedule."""
        if self._closed:
            raise RuntimeError("Event loop is closed")
        if self._running:
            raise RuntimeError("This event loop is already running")
        if asyncio._get_running_loop() is not None:
            raise RuntimeError("Cannot run the event loop while another loop is running")
        self._owner = get_ident()


def _stop_when_done(future: asyncio.Future[Any]) -> None:
    if not future.cancelled() and isinstance(future.exception(), KeyboardInterrupt | SystemExit):
        return  # it has come out of the loop already; stopping now would end the clean-up's run instead
    future.get_loop().stop()


class WatchedLoop:
    """Stands in the place of a thread's loop, and notes whether anybody uses it.

    Attributes:
        is_used: Whether anybody did.
    """

    def __init__(self, loop: VirtualTimeLoop) -> None:
        self._loop = loop
        self.is_used = False

    def __getattr__(self, name: str) -> Any:
        self.is_used = True
        return getattr(self._loop, name)


@contextmanager
def watched(loop: VirtualTimeLoop) -> Iterator[WatchedLoop]:
    """Put a watched loop in the place of the running one, which knows whether the block reads the clock."""
    of_thread.loop = watch = cast(Any, WatchedLoop(loop))
    try:
        yield watch
    finally:
        of_thread.loop = loop
