"""Running a function in its own thread, which can be interrupted as Ctrl-C interrupts the main thread."""

from __future__ import annotations

import asyncio
import ctypes
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from typing import Generic, TypeVar

T = TypeVar("T")


def call(function: Callable[[], T]) -> T:
    """Return what a function returns; it runs in a thread of its own where this one runs an event loop.

    A Ctrl-C meanwhile interrupts the function, which leaves nothing half-done, and then raises here.
    """
    if not _in_loop():
        return function()
    work = _Work(function)
    with _interruptible():
        try:
            work.start()
            # In slices: a signal that comes in the instant before a wait is seen only after it.
            while not work.ended.wait(0.1):
                pass
        except BaseException:
            work.interrupt()
            raise
    return work.outcome()


async def call_async(function: Callable[[], T]) -> T:
    """Return what a function returns, which runs in a thread; cancelling interrupts the function first."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    work = _Work(function, lambda: loop.call_soon_threadsafe(ended.set))
    work.start()
    try:
        await ended.wait()
    except asyncio.CancelledError:
        await loop.run_in_executor(None, work.interrupt)
        raise
    return work.outcome()


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C raise in the main thread, where ``asyncio.run`` would only cancel the task that waits."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class _Work(threading.Thread, Generic[T]):
    """Runs a function, and keeps what it returns or raises."""

    def __init__(self, function: Callable[[], T], tell: Callable[[], object] = lambda: None) -> None:
        super().__init__(name="fedsim run", daemon=True)
        self.ended = threading.Event()
        self._function = function
        self._context = copy_context()
        self._tell = tell
        self._returned: list[T] = []
        self._raised: BaseException | None = None

    def run(self) -> None:
        """Run the function."""
        try:
            self._returned.append(self._context.run(self._function))
        except BaseException as error:
            self._raised = error
        finally:
            self.ended.set()
            self._tell()

    def interrupt(self) -> None:
        """Raise KeyboardInterrupt in the function, as often as it takes, and wait until it has ended."""
        while self.is_alive() and not self.ended.is_set():
            # What CPython offers for this: the exception is raised before the thread's next instruction.
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(self.ident or 0), ctypes.py_object(KeyboardInterrupt)
            )
            self.ended.wait(1.0)

    def outcome(self) -> T:
        """Return what the function has returned, or raise what it has raised."""
        if self._raised is not None:
            raise self._raised
        [value] = self._returned
        return value
