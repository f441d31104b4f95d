"""What a timeline shows of the server: rounds, merges, its own work, its traffic, and what was measured."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedsim.params import Array
from fedsim.report.cost_breakdown import Columns
from fedsim.timeline.perfetto_trace import PerfettoTrace, lanes
from fedsim.timeline.run_events import RunEvents, SentFrame

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


def bytes_in_flight(frames: Sequence[SentFrame], end_ns: int) -> list[tuple[int, int]]:
    """Return the instants at which the bytes under way change, and to what."""
    began, ended = _times(frames, end_ns)
    return _sums(began, ended, np.array([frame.num_bytes for frame in frames], np.int64))


def mean_rates(frames: Sequence[SentFrame], end_ns: int) -> list[tuple[int, int]]:
    """Return the same of bytes per second, where each frame counts with its mean rate while it is under way.

    A trace has no rates, so within the time of a frame its rate may have changed. What takes no time has no
    rate, and a frame that was lost or is under way at the end has not sent all of its bytes: neither counts.
    """
    whole = [frame for frame in frames if frame.outcome in ("delivered", "undecodable")]
    moving = [frame for frame in whole if frame.ended_ns is not None and frame.ended_ns > frame.sent_ns]
    began, ended = _times(moving, end_ns)
    sizes = np.array([frame.num_bytes for frame in moving], np.int64)
    return _sums(began, ended, np.rint(sizes * 1e9 / (ended - began)).astype(np.int64))


def _times(frames: Sequence[SentFrame], end_ns: int) -> tuple[Array, Array]:
    ended = [end_ns if frame.ended_ns is None else frame.ended_ns for frame in frames]
    return np.array([frame.sent_ns for frame in frames], np.int64), np.array(ended, np.int64)


def _sums(began: Array, ended: Array, amounts: Array) -> list[tuple[int, int]]:
    """Return the sum of what lasts, at each instant at which it changes."""
    at_ns, of = np.unique(np.concatenate([began, ended]), return_inverse=True)
    changes = np.zeros(len(at_ns), np.int64)
    np.add.at(changes, of, np.concatenate([amounts, -amounts]))
    sums = np.cumsum(changes)
    is_new = np.diff(sums, prepend=0) != 0
    return list(zip(at_ns[is_new].tolist(), sums[is_new].tolist(), strict=True))
