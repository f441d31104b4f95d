"""What a timeline shows of clients: their dispatches, the phases within, frames, and what went wrong."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from fedsim.params import Array
from fedsim.report.number_format import several
from fedsim.report.run_trace import PHASE_WORDS, Replayed
from fedsim.timeline.perfetto_trace import PerfettoTrace, lanes
from fedsim.timeline.run_events import RunEvents, SentFrame

_NOTES = ("dispatch", "outcome", "cause", "version", "staleness")
"""Columns of dispatches that are shown beside them."""


@dataclass(slots=True, eq=False)
class _Dispatch:
    """A dispatch of a client that is shown; instants in ns."""

    number: int
    name: str
    notes: bytes
    asked_ns: int
    ended_ns: int
    spans: Sequence[tuple[str, int, int]]


class _Instant(NamedTuple):
    """What takes no time: the arguments of :meth:`PerfettoTrace.instant`."""

    track: int
    at_ns: int
    name: str
    notes: bytes = b""
    leaves: int | None = None
    arrives: int | None = None


def add_clients(
    trace: PerfettoTrace,
    process: int,
    server_frames: int,
    shown: Mapping[str, Array],
    groups: Array,
    replayed: Replayed,
    events: RunEvents,
) -> None:
    """Add a track for each client that is shown; ``groups`` are the labels of all clients' devices."""
    chosen = np.concatenate(list(shown.values()))
    of_client = _dispatches(trace, replayed, chosen)
    frames = _frames(events, set(chosen.tolist()))
    for what, clients in shown.items():
        parent = trace.track(f"{several(len(clients), 'client')}, {what}", process) if what else process
        for client in clients.tolist():
            name = f"client {client} ({groups[client]})"
            mine = of_client[client]
            tracks: list[int] = []
            times = [(dispatch.asked_ns, dispatch.ended_ns) for dispatch in mine]
            for dispatch, lane in zip(mine, lanes(times), strict=True):
                if lane == len(tracks):
                    tracks.append(trace.track(name, parent))
                of = client, dispatch.number
                instants = _instants(trace, frames[of], events, of, tracks[lane], server_frames)
                _add_dispatch(trace, tracks[lane], dispatch, sorted(instants, key=attrgetter("at_ns")))


def _dispatches(trace: PerfettoTrace, replayed: Replayed, clients: Array) -> dict[int, list[_Dispatch]]:
    """Return the dispatches of some clients, in the order of sending."""
    table = replayed.dispatches.columns()
    chosen = np.flatnonzero(np.isin(table["client"], clients))
    row_of_span, phase, began, ended, is_exact = replayed.spans.T
    phases = list(zip(PHASE_WORDS[phase].tolist(), began.tolist(), ended.tolist(), strict=True))
    first = np.searchsorted(row_of_span, chosen)
    last = np.searchsorted(row_of_span, chosen, side="right")
    assumed = np.zeros(len(table["client"]), np.bool_)
    assumed[row_of_span[is_exact == 0]] = True
    notes = {name: table[name][chosen].tolist() for name in _NOTES}
    notes["phases"] = [
        "only their lengths are known" if is_so else None for is_so in assumed[chosen].tolist()
    ]
    others = [table[name][chosen].tolist() for name in ("client", "round", "exchange")]
    others += [
        replayed.dispatches.asked_ns()[chosen].tolist(),
        replayed.dispatches.ended_ns()[chosen].tolist(),
    ]
    by_client: dict[int, list[_Dispatch]] = {client: [] for client in clients.tolist()}
    for values, (client, number, exchange, asked_ns, ended_ns), begin, end in zip(
        zip(*notes.values(), strict=True),
        zip(*others, strict=True),
        first.tolist(),
        last.tolist(),
        strict=True,
    ):
        own = dict(zip(notes, values, strict=True))
        name, spans = f"round {number}: {exchange}", phases[begin:end]
        dispatch = _Dispatch(own["dispatch"], name, trace.notes(own), asked_ns, ended_ns, spans)
        by_client[client].append(dispatch)
    return by_client


def _frames(
    events: RunEvents, clients: set[int]
) -> defaultdict[tuple[int, int], list[tuple[int, SentFrame]]]:
    """Return the frames of some clients by client and number of the dispatch, each with its own number."""
    by_client: defaultdict[tuple[int, int], list[tuple[int, SentFrame]]] = defaultdict(list)
    for number, frame in enumerate(events.frames, 1):
        if frame.client in clients:
            by_client[frame.client, frame.dispatch].append((number, frame))
    return by_client


def _instants(
    trace: PerfettoTrace,
    frames: Sequence[tuple[int, SentFrame]],
    events: RunEvents,
    of: tuple[int, int],
    track: int,
    server_frames: int,
) -> Iterator[_Instant]:
    for number, frame in frames:
        sender, receiver = (track, server_frames) if frame.up else (server_frames, track)
        notes = trace.notes({"client": frame.client, "bytes": frame.num_bytes})
        yield _Instant(sender, frame.sent_ns, f"send {frame.kind}", notes, leaves=number)
        if frame.ended_ns is None:
            continue
        if frame.outcome == "delivered":
            yield _Instant(receiver, frame.ended_ns, f"receive {frame.kind}", notes, arrives=number)
        else:
            why = notes + trace.notes({"cause": frame.cause or None})
            yield _Instant(track, frame.ended_ns, f"{frame.kind} {frame.outcome}", why, arrives=number)
    for at_ns, words in events.remarks.get(of, ()):
        yield _Instant(track, at_ns, words)


def _add_dispatch(
    trace: PerfettoTrace, track: int, dispatch: _Dispatch, instants: Sequence[_Instant]
) -> None:
    """Add a dispatch; what happens between two phases is written between them, so it lies within neither."""
    waiting = deque(instants)

    def add_until(at_ns: float) -> None:
        while waiting and waiting[0].at_ns <= at_ns:
            trace.instant(*waiting.popleft())

    trace.begin(track, dispatch.asked_ns, dispatch.name, dispatch.notes)
    for phase, began_ns, ended_ns in dispatch.spans:
        add_until(began_ns)
        trace.begin(track, began_ns, phase)
        trace.end(track, ended_ns)
    add_until(dispatch.ended_ns)
    trace.end(track, dispatch.ended_ns)
    add_until(math.inf)
