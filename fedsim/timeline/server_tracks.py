"""What a timeline shows of the server: rounds, merges, its own work, its traffic, and what was measured."""

from __future__ import annotations

import numpy as np

from fedsim.report.cost_breakdown import Columns
from fedsim.timeline.lanes import lanes
from fedsim.timeline.perfetto_trace import PerfettoTrace
from fedsim.timeline.run_events import RunEvents
from fedsim.timeline.traffic_counters import bytes_in_flight, mean_rates

_RATE = "Each frame counts with its mean rate while it is under way; a trace has no other rates."


def add_server(
    trace: PerfettoTrace, process: int, events: RunEvents, rounds: Columns, end_ns: int, about: bytes
) -> int:
    """Add the server's tracks, and return that on which frames leave and arrive."""
    server = trace.track("server", process)
    trace.instant(server, 0, "about this run", about)
    _add_rounds(trace, trace.track("rounds", server), rounds)
    _add_merges(trace, server, events)
    frames = trace.track("frames", server, "Frames to and from the clients that are shown.")
    _add_jobs(trace, server, events, end_ns)
    for up, way in ((False, "to clients"), (True, "to the server")):
        moving = [frame for frame in events.frames if frame.up == up]
        track = trace.counter(f"bytes in flight {way}", server, "B")
        for at_ns, value in bytes_in_flight(moving, end_ns):
            trace.count(track, at_ns, value)
        track = trace.counter(f"link use {way}", server, "B/s", _RATE)
        for at_ns, value in mean_rates(moving, end_ns):
            trace.count(track, at_ns, value)
    for what, measured in events.accuracies.items():
        track = trace.counter(f"accuracy, {what}", server)
        for at_ns, share in measured:
            trace.count(track, at_ns, float(share))
    return frames


def _add_rounds(trace: PerfettoTrace, track: int, rounds: Columns) -> None:
    began, ended = (np.rint(rounds[name] * 1e9).astype(np.int64) for name in ("began_at_s", "ended_at_s"))
    for number, began_ns, ended_ns in zip(
        rounds["round"].tolist(), began.tolist(), ended.tolist(), strict=True
    ):
        trace.begin(track, began_ns, f"round {number}")
        trace.end(track, ended_ns)


def _add_merges(trace: PerfettoTrace, server: int, events: RunEvents) -> None:
    track = trace.track("merges", server)
    version = trace.counter("model version", server)
    trace.count(version, 0, 0)
    for merge in events.merges:
        notes = trace.notes({"round": merge.round, "version": merge.version, "replies": merge.num_replies})
        trace.instant(track, merge.at_ns, f"merge: {merge.exchange}", notes)
        trace.count(version, merge.at_ns, merge.version)
    if events.stopped is not None:
        at_ns, budget = events.stopped
        trace.instant(track, at_ns, f"stopped: {budget}")


def _add_jobs(trace: PerfettoTrace, server: int, events: RunEvents, end_ns: int) -> None:
    """Add the work of the server's own device, where there was any."""
    times = [(job.began_ns, end_ns if job.ended_ns is None else job.ended_ns) for job in events.jobs]
    tracks: list[int] = []
    for job, (began_ns, ended_ns), lane in zip(events.jobs, times, lanes(times), strict=True):
        if lane == len(tracks):
            tracks.append(trace.track("work", server))
        trace.begin(tracks[lane], began_ns, job.name, trace.notes({"flops": job.flops}))
        trace.end(tracks[lane], ended_ns)
