"""A trace as Perfetto's generated classes read it: tracks with their slices, instants and values."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent


@dataclass
class Slice:
    """A slice; an instant is one that takes no time. ``parent`` is the slice that it lies in."""

    track: int
    name: str
    began_ns: int
    notes: dict[str, Any]
    parent: Slice | None
    ended_ns: int | None = None


@dataclass
class ReadBack:
    """What a trace holds, after checks that its stacks are sound."""

    names: dict[int, str] = field(default_factory=dict)
    parents: dict[int, int] = field(default_factory=dict)
    processes: dict[int, str] = field(default_factory=dict)
    slices: list[Slice] = field(default_factory=list)
    instants: list[Slice] = field(default_factory=list)
    values: defaultdict[str, list[tuple[int, float]]] = field(default_factory=lambda: defaultdict(list))
    flows: defaultdict[int, list[tuple[str, Slice]]] = field(default_factory=lambda: defaultdict(list))

    def path(self, track: int) -> tuple[str, ...]:
        above = self.path(self.parents[track]) if track in self.parents else ()
        return *above, self.names[track]


def read_back(content: bytes) -> ReadBack:
    """Read a trace, as trace_processor does: interned names first, then events by instant and place."""
    trace, found = Trace(), ReadBack()
    trace.ParseFromString(content)
    words: dict[str, dict[int, str]] = {"event_names": {}, "debug_annotation_names": {}}
    events = []
    assert trace.packet[0].sequence_flags == 3
    for packet in trace.packet:
        assert packet.trusted_packet_sequence_id == 1
        for kind, known in words.items():
            known.update({entry.iid: entry.name for entry in getattr(packet.interned_data, kind)})
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            found.names[track.uuid] = track.name or track.process.process_name
            if track.HasField("parent_uuid"):
                assert track.parent_uuid in found.names
                found.parents[track.uuid] = track.parent_uuid
            else:
                found.processes[track.uuid] = track.process.process_name
        elif packet.HasField("track_event"):
            assert packet.sequence_flags == 2
            event = packet.track_event
            notes = {
                words["debug_annotation_names"][note.name_iid]: getattr(note, note.WhichOneof("value"))
                for note in event.debug_annotations
            }
            events.append((packet.timestamp, event, words["event_names"].get(event.name_iid, ""), notes))
    stacks: defaultdict[int, list[Slice]] = defaultdict(list)
    for at_ns, event, name, notes in sorted(events, key=lambda one: one[0]):
        stack = stacks[event.track_uuid]
        if event.type == TrackEvent.TYPE_COUNTER:
            value = event.counter_value if event.HasField("counter_value") else event.double_counter_value
            found.values[found.names[event.track_uuid]].append((at_ns, value))
        elif event.type == TrackEvent.TYPE_SLICE_END:
            stack.pop().ended_ns = at_ns
        else:
            one = Slice(event.track_uuid, name, at_ns, notes, stack[-1] if stack else None)
            if event.type == TrackEvent.TYPE_SLICE_BEGIN:
                found.slices.append(one)
                stack.append(one)
            else:
                one.ended_ns = at_ns
                found.instants.append(one)
            for flow in event.flow_ids:
                found.flows[flow].append(("leaves", one))
            for flow in event.terminating_flow_ids:
                found.flows[flow].append(("arrives", one))
    assert not any(stacks.values())
    return found
