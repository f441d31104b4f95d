"""Reports of a run that cannot go on: which task waits for what, or which one spins.

They are made only after a run has failed, so they may take time and look into frames. Equal runs give equal
texts: tasks are listed by name, and memory addresses are left out.
"""

import asyncio
import linecache
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

_SHOWN_TASKS = 100
_SHOWN_SPINNERS = 10
_SHOWN_CHARACTERS = 160
_ASYNCIO = asyncio.__name__


def deadlock_report(now_s: float, tasks: Sequence[asyncio.Task[Any]]) -> str:
    """Return a text that names each waiting task, its await stack and the object that it waits for."""
    shown = [line for task in tasks[:_SHOWN_TASKS] for line in _task_lines(task)]
    if len(tasks) > _SHOWN_TASKS:
        shown.append(f"  ... and {len(tasks) - _SHOWN_TASKS} more")
    return "\n".join(
        [
            f"deadlock at {now_s!r} s of virtual time: nothing is runnable and nothing is scheduled, so "
            f"nothing can ever happen again; {len(tasks)} waiting task(s):",
            *shown,
        ]
    )


def livelock_report(now_s: float, limit: int, tally: Counter[str]) -> str:
    """Return a text that names the callbacks that ran most often in the last events of an instant."""
    watched = tally.total()
    return "\n".join(
        [
            f"livelock at {now_s!r} s of virtual time: more than {limit} events ran without time advancing; "
            "wait with sleep_for or for an event. "
            f"Of the last {watched} events:",
            *(f"  {count} x {name}" for name, count in tally.most_common(_SHOWN_SPINNERS)),
        ]
    )


def natural_name(task: asyncio.Task[Any]) -> list[tuple[int, int, str]]:
    """Order ``Task-9`` before ``Task-10``."""
    parts = re.split(r"(\d+)", task.get_name())
    return [(1, int(part), "") if part.isdecimal() else (0, 0, part) for part in parts]


def _task_lines(task: asyncio.Task[Any]) -> Iterator[str]:
    frames = list(_await_stack(task))
    yield f"  {task.get_name()} waits on {_waited_object(task, frames)}"
    for frame in frames:
        code = frame.f_code
        source = linecache.getline(code.co_filename, frame.f_lineno).strip()
        yield f"    {code.co_filename}:{frame.f_lineno} {code.co_qualname}" + (
            f": {source}" if source else ""
        )


def _await_stack(task: asyncio.Task[Any]) -> Iterator[FrameType]:
    """Yield the frames from the task's coroutine to the innermost awaited one that Python shows."""
    awaited: Any = task.get_coro()
    while awaited is not None:
        for prefix in ("cr", "gi", "ag"):
            frame = getattr(awaited, f"{prefix}_frame", None)
            if frame is not None:
                yield frame
                break
        else:
            return
        awaited = getattr(awaited, "gi_yieldfrom" if prefix == "gi" else f"{prefix}_await", None)


def _waited_object(task: asyncio.Task[Any], frames: list[FrameType]) -> str:
    future = getattr(task, "_fut_waiter", None)
    if isinstance(future, asyncio.Task):
        return f"task {future.get_name()!r}"
    owner = frames[-1].f_locals.get("self") if frames else None
    if owner is not None and (frames[-1].f_globals.get("__name__") or "").startswith(_ASYNCIO):
        return _plain(owner)  # the event, queue or lock whose method made the future
    return "nothing" if future is None else _plain(future)


def _plain(value: object) -> str:
    text = re.sub(r" at 0x[0-9a-f]+", "", repr(value))
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."
