"""Running a function in its own thread, which can be interrupted as Ctrl-C interrupts the main thread."""

from __future__ import annotations

import asyncio
import ctypes
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
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
            while not wait([work.future], 0.1).done:
                pass
        except BaseException:
            work.interrupt()
            raise
    return work.future.result()


async def call_async(function: Callable[[], T]) -> T:
    """Return what a function returns, which runs in a thread; cancelling interrupts the function first."""
    work = _Work(function)
    work.start()
    try:
        return await asyncio.wrap_future(work.future)
    except asyncio.CancelledError:
        await asyncio.get_running_loop().run_in_executor(None, work.interrupt)
        raise


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
    """Runs a function; ``future`` has what it returns or raises."""

    def __init__(self, function: Callable[[], T]) -> None:
        super().__init__(name="fedsim run", daemon=True)
        self.future = Future[T]()
        self.future.set_running_or_notify_cancel()  # from now on it cannot be cancelled
        self._function = function
        self._context = copy_context()

    def run(self) -> None:
        """Run the function."""
        try:
            returned = self._context.run(self._function)
        except BaseException as error:
            self.future.set_exception(error)
        else:
            self.future.set_result(returned)

    def interrupt(self) -> None:
        """Raise KeyboardInterrupt in the function, as often as it takes, and wait until it has ended."""
        while self.is_alive() and not self.future.done():
            # What CPython offers for this: the exception is raised before the thread's next instruction.
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(self.ident or 0), ctypes.py_object(KeyboardInterrupt)
            )
            wait([self.future], 1.0)
