"""Virtual time: an asyncio loop on integer nanoseconds, sleeping, deadlines, ordered waiting, the trace."""

from fedsim.clock.event_trace import RecordKind, Trace, read_trace
from fedsim.clock.handles import EventClass, Handle
from fedsim.clock.loop import LIVELOCK_LIMIT, Timer, VirtualTimeLoop
from fedsim.clock.ordered_wait import TaskGroup, as_completed, wait
from fedsim.clock.running import run
from fedsim.clock.sleep_and_deadlines import (
    Deadline,
    call_after,
    deadline_after,
    deadline_at,
    now_ns,
    now_s,
    running_loop,
    sleep_for,
    sleep_until,
    start_clock,
)

__all__ = [
    "LIVELOCK_LIMIT",
    "Deadline",
    "EventClass",
    "Handle",
    "RecordKind",
    "TaskGroup",
    "Timer",
    "Trace",
    "VirtualTimeLoop",
    "as_completed",
    "call_after",
    "deadline_after",
    "deadline_at",
    "now_ns",
    "now_s",
    "read_trace",
    "run",
    "running_loop",
    "sleep_for",
    "sleep_until",
    "start_clock",
    "wait",
]
