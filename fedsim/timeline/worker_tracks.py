"""What a timeline shows of the computer that did the run: its threads at their jobs, in real time."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fedsim.engine.job_times import TimedJobs
from fedsim.timeline.perfetto_trace import PerfettoTrace

SIMULATION = "simulation"
"""The thread in which events happen; jobs that no worker does are done there too."""


def add_workers(trace: PerfettoTrace, jobs: Sequence[TimedJobs], rounds: Sequence[tuple[int, int]]) -> None:
    """Add a process of real time: what each thread did, and how long rounds took."""
    process = trace.process("real time of this computer", "from the beginning of the run")
    track = trace.track("rounds", process)
    began_ns = 0
    for number, ended_ns in rounds:
        trace.begin(track, began_ns, f"round {number}")
        trace.end(track, ended_ns)
        began_ns = ended_ns
    tracks = {name: trace.track(name, process) for name in sorted({_name(job.thread) for job in jobs})}
    for job in jobs:
        track = tracks[_name(job.thread)]
        trace.begin(track, job.began_ns, job.kind, trace.notes({"jobs": job.number}))
        trace.end(track, job.ended_ns)


def _name(thread: str) -> str:
    worker = re.fullmatch(r"fedsim-worker-(\d+)", thread)
    return f"worker {worker[1]}" if worker else SIMULATION
