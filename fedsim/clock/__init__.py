"""Virtual time: an asyncio loop on integer nanoseconds, sleeping, waiting, and the trace."""

from fedsim.clock.event_trace import RecordKind, Records, StoredTrace, Trace, read_trace
from fedsim.clock.handles import EventClass
from fedsim.clock.loop import VirtualTimeLoop
from fedsim.clock.running import run
from fedsim.clock.sleep_and_wait import (
    call_after,
    end_of_instant,
    now_ns,
    now_s,
    running_loop,
    sleep_for,
    sleep_until,
    start_clock,
    wait,
)
from fedsim.clock.timeouts import Timeout, Timeouts

__all__ = [
    "EventClass",
    "RecordKind",
    "Records",
    "StoredTrace",
    "Timeout",
    "Timeouts",
    "Trace",
    "VirtualTimeLoop",
    "call_after",
    "end_of_instant",
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
