"""Running a coroutine on virtual time, from nothing to a clean end."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, TypeVar

from fedsim.clock.loop import VirtualTimeLoop
from fedsim.errors import RunError

T = TypeVar("T")

_GEN0_THRESHOLD = 1_000_000
"""New objects between two young collections; Python's 700 makes a run of 100,000 tasks a third slower. Each
collection looks at all that a large cohort holds, and frees nothing."""

_log = logging.getLogger(__name__)


@dataclass
class _Quiet:
    """The number of runs that keep the collector quiet, and its former settings."""

    runs: int = 0
    thresholds: tuple[int, int, int] = (0, 0, 0)
    freezes: bool = False
    lock: Lock = field(default_factory=Lock)


_quiet = _Quiet()


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a fresh :class:`VirtualTimeLoop` and return its result.

    At the end the remaining tasks are cancelled, and the loop is closed. Raises what the coroutine or a
    callback raises, and a RunError if a task failed whose exception nobody retrieved. Ctrl-C raises
    ``KeyboardInterrupt``, also while the thread waits for a training job.
    """
    if not asyncio.iscoroutine(coroutine):
        raise TypeError(f"{coroutine!r} is not a coroutine: call the async function first")
    if asyncio._get_running_loop() is not None:
        coroutine.close()
        raise RuntimeError("run() cannot be called while a loop is running: await the coroutine instead")
    loop = VirtualTimeLoop()
    with quiet_collector():
        try:
            result = _run_and_clean_up(loop, coroutine)
            del coroutine
            gc.collect()  # a lost task reports its exception when deleted: now, not at some chance moment
        finally:
            loop.close()
    if loop.unseen_errors:
        first, count = loop.unseen_errors[0], len(loop.unseen_errors)
        raise RunError(
            f"the run ended well, but {count} error(s) were seen by nobody, the first {first!r}: await every "
            "task, or handle the error where it happens"
        ) from first
    return result


def _run_and_clean_up(loop: VirtualTimeLoop, coroutine: Coroutine[Any, Any, T]) -> T:
    try:
        result = loop.run_until_complete(coroutine)
    except BaseException:
        try:
            _clean_up(loop)
        except Exception:
            _log.exception("cleaning up after a failed run failed too")
            for task in loop.pending_tasks():
                # Told above. Without this, asyncio tells it again whenever the task is deleted.
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # asyncio's own switch
        raise
    _clean_up(loop)
    return result


def _clean_up(loop: VirtualTimeLoop) -> None:
    tasks = loop.pending_tasks()
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    for task in tasks:
        if not task.cancelled() and (error := task.exception()) is not None:
            loop.call_exception_handler(
                {"message": "a task failed while it was cancelled", "exception": error, "task": task}
            )


@contextmanager
def quiet_collector() -> Iterator[None]:
    """Let the cyclic collector run rarely and skip older objects, until the last run of the process ends."""
    with _quiet.lock:
        if _quiet.runs == 0:
            _quiet.thresholds = gc.get_threshold()
            _quiet.freezes = gc.get_freeze_count() == 0  # another's freeze is not ours to undo
            if _quiet.freezes:
                gc.freeze()
            gc.set_threshold(_GEN0_THRESHOLD, *_quiet.thresholds[1:])
        _quiet.runs += 1
    try:
        yield
    finally:
        with _quiet.lock:
            _quiet.runs -= 1
            if _quiet.runs == 0:
                gc.set_threshold(*_quiet.thresholds)
                if _quiet.freezes:
                    gc.unfreeze()
