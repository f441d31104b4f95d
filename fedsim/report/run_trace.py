"""The trace of a run that has ended, read again from its folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from fedsim.clock import StoredTrace
from fedsim.clock.event_trace import stored_hash
from fedsim.errors import OutputError
from fedsim.report.read_whole import read_whole
from fedsim.report.summary import read_summary
from fedsim.runtime.records.dispatch_phases import UnderwayInSpans
from fedsim.runtime.records.dispatch_table import DispatchTable

TRACE = "trace.msgpack"


@contextmanager
def opened(folder: Path) -> Iterator[BinaryIO]:
    """Open the trace of a run, at its beginning.

    Raises:
        OutputError: It is not there, or is not the one that the run's summary names.
    """
    file, wanted = folder / TRACE, read_summary(folder).get("trace_hash")
    if read_whole(file, _hash) != wanted:
        raise OutputError(
            f"{file} is not the trace of this run, whose hash {wanted} its summary gives: these results are "
            "not whole, so do the run again"
        )
    with file.open("rb") as stream:
        yield stream


def replay(folder: Path, hear: Callable[[UnderwayInSpans], object]) -> DispatchTable:
    """Return the table of a run's dispatches, made again from its trace.

    Args:
        folder: The run's.
        hear: Told of each dispatch with its spans when nothing more is to come of it.

    Raises:
        OutputError: The folder holds no whole run.
    """
    simulated_s = read_summary(folder)["simulated_s"]
    with opened(folder) as file:
        trace = StoredTrace(file)
        dispatches = DispatchTable(trace, hear)
        trace.play()
    dispatches.finish(round(simulated_s * 1e9))
    return dispatches


def _hash(file: Path) -> str:
    with file.open("rb") as stream:
        return stored_hash(stream)
