"""The log of a run: one JSON object per line, stamped with virtual time.

No real time is in it, so that equal runs leave equal logs.
"""

from __future__ import annotations

import json
from collections.abc import MutableMapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import structlog

from fedsim.bus import Log
from fedsim.clock import now_s
from fedsim.numerals import scalar

if TYPE_CHECKING:
    from _typeshed import SupportsWrite


class _Lines:
    """What structlog hands finished lines to."""

    def __init__(self, sink: SupportsWrite[bytes]) -> None:
        self._sink = sink

    def info(self, line: str) -> None:
        self._sink.write(line.encode() + b"\n")

    warning = error = debug = info


def line_log(sink: SupportsWrite[bytes]) -> Log:
    """Return a logger whose events become lines: ``at_s`` if a loop runs, ``level``, ``event``, values."""
    log: Log = structlog.wrap_logger(_Lines(sink), processors=[_line]).bind()
    return log


def _line(logger: Any, level: str, event: MutableMapping[str, Any]) -> str:
    stamp = {}
    with suppress(RuntimeError):  # before and after the simulation there is no virtual time
        stamp["at_s"] = now_s()
    values = {name: _plain(value) for name, value in event.items() if name != "event"}
    record = {**stamp, "level": level, "event": event["event"], **values}
    return json.dumps(record, ensure_ascii=False, allow_nan=False, default=_plain)


def _plain(value: Any) -> Any:
    """Return a value that JSON has: a plain scalar, a list or map, or text."""
    value = scalar(value)
    return value if isinstance(value, int | float | str | bool | list | tuple | dict | None) else str(value)
