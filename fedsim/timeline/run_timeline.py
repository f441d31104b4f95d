"""The timeline of a run: what its folder tells, on the tracks of a trace for Perfetto."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedsim.clock.running import quiet_collector
from fedsim.durable import telling
from fedsim.engine.job_times import TimedJobs
from fedsim.errors import OutputError
from fedsim.params import Array
from fedsim.report.atomic_folder import MEND, write_file
from fedsim.report.job_time_file import read_job_times
from fedsim.report.number_format import several
from fedsim.report.read_parquet import read_columns
from fedsim.report.read_results import read_provenance
from fedsim.report.run_trace import replay
from fedsim.report.shown_clients import MAX_CLIENTS, shown_clients
from fedsim.report.summary import read_summary
from fedsim.timeline.client_tracks import add_clients
from fedsim.timeline.perfetto_trace import PerfettoTrace, is_perfetto_trace
from fedsim.timeline.run_events import RunEvents
from fedsim.timeline.server_tracks import add_server

ORDER_IS_ASSUMED = (
    "clients ran in processes of their own, so it is known how long the phases of a dispatch lasted, but not "
    "when each began: they are shown in their usual order"
)


@dataclass(frozen=True, slots=True)
class Shown:
    """What a timeline shows."""

    num_clients: int
    remarks: Sequence[str]


def save_timeline(folder: Path, file: Path, *, most_clients: int = MAX_CLIENTS) -> Shown:
    """Write the timeline of a run to a file, whole or not at all; an older timeline there is replaced."""
    with telling(file, MEND, error=OutputError):
        if file.exists() and not is_perfetto_trace(file):
            raise OutputError(f"{file} exists already, and is no timeline: choose another place")
    trace = PerfettoTrace()
    with quiet_collector():  # what a timeline is made of has no cycles
        shown = add_run(trace, folder, most_clients)
    with telling(file, MEND, error=OutputError):
        file.parent.mkdir(parents=True, exist_ok=True)
    write_file(file, bytes(trace.content))
    return shown


def add_run(trace: PerfettoTrace, folder: Path, most_clients: int = MAX_CLIENTS) -> Shown:
    """Add the timeline of a run to a trace."""
    events = RunEvents()
    replayed = replay(folder, events.listeners())
    summary = read_summary(folder)
    rounds = read_columns(folder / "rounds.parquet", ("round", "began_at_s", "ended_at_s"))
    labels = read_columns(folder / "clients.parquet", ("label",))["label"]
    is_real = read_provenance(folder)["bus"] == "http"
    end_ns = round(summary["simulated_s"] * 1e9)

    dispatches = replayed.dispatches
    shown = shown_clients(dispatches.client(), dispatches.turnaround_ns(), most_clients)
    num_clients = sum(map(len, shown.values()))
    remarks = _left_out(shown, summary["participation"]["clients_asked"])
    if not replayed.spans[:, -1].all():
        remarks.append(ORDER_IS_ASSUMED)

    process = trace.process("real time" if is_real else "simulated time", f"{folder.resolve().name}")
    about = {name: summary[name] for name in ("scenario", "algorithm", "seed", "fedsim", "trace_hash")}
    about |= {f"remark {number}": remark for number, remark in enumerate(remarks, 1)}
    frames = add_server(trace, process, events, rounds, end_ns, trace.notes(about))
    add_clients(trace, process, frames, shown, labels, replayed, events)
    if (timed := read_job_times(folder)) is not None:
        add_workers(trace, *timed)
    return Shown(num_clients, remarks)


def _left_out(shown: Mapping[str, Array], num_asked: int) -> list[str]:
    """Return which clients are left out, in words."""
    if "" in shown:
        return []
    parts = [f"the {len(clients)} {what}" for what, clients in shown.items()]
    return [
        f"of {several(num_asked, 'client')} that were asked, {', '.join(parts[:-1])} and {parts[-1]} are "
        "shown, by the mean time of their dispatches; counters are of all clients"
    ]


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
