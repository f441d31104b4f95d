"""``real_time.msgpack``: when which thread was at which jobs, of a run with ``profile``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgpack

from fedsim.engine.job_times import JobTimes, TimedJobs
from fedsim.report.read_results import read_checked

REAL_TIME = "real_time.msgpack"


def packed(times: JobTimes) -> bytes:
    """Return the content of the file; instants are in ns of real time since the run began."""
    content: bytes = msgpack.packb({"jobs": list(times.jobs), "rounds": times.rounds})
    return content


def read_job_times(folder: Path) -> tuple[list[TimedJobs], list[tuple[int, int]]] | None:
    """Return the jobs, and when each round ended; None where the run was done without ``profile``."""
    file = folder / REAL_TIME
    return read_checked(file, _read) if file.exists() else None


def _read(file: Path) -> tuple[list[TimedJobs], list[tuple[int, int]]]:
    try:
        read: Any = msgpack.unpackb(file.read_bytes())
    except msgpack.UnpackException as error:
        raise ValueError(error) from error
    return [TimedJobs(*job) for job in read["jobs"]], [(number, at_ns) for number, at_ns in read["rounds"]]
