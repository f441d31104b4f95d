"""A trace of Perfetto: tracks, and slices, instants, arrows and values on them.

It is written as ``TrackEvent`` packets of one sequence, in the format of Perfetto's ``trace_packet.proto``.
Instants are nanoseconds. Packets need not be in the order of time; of those of one instant, the first counts
as the earlier. Names are sent once and then named by a number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from pathlib import Path
from struct import Struct

_VARINT, _FIXED64, _LENGTH = 0, 1, 2  # wire types
_DOUBLE, _UNSIGNED = Struct("<d"), Struct("<Q")


def varint(value: int) -> bytes:
    """Return a whole number in groups of seven bits, the lowest first; a negative one as its 64 bits."""
    value &= 0xFFFF_FFFF_FFFF_FFFF
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


@cache
def tag(field: int, wire_type: int) -> bytes:
    """Return what comes before a value of a field."""
    return varint(field << 3 | wire_type)


def number(field: int, value: int) -> bytes:
    """Return a field that holds a whole number, a truth value, or a member of an enumeration."""
    return tag(field, _VARINT) + varint(value)


def fixed64(field: int, value: float) -> bytes:
    """Return a field that holds a number in eight bytes: a whole one as such, others as floating-point."""
    kind = _UNSIGNED if isinstance(value, int) else _DOUBLE
    return tag(field, _FIXED64) + kind.pack(value)


def message(field: int, *parts: bytes) -> bytes:
    """Return a field that holds a message, made of the fields given."""
    content = b"".join(parts)
    return tag(field, _LENGTH) + varint(len(content)) + content


def text(field: int, value: str) -> bytes:
    """Return a field that holds a text."""
    return message(field, value.encode())


# Fields of messages, by their names in trace_packet.proto and the files that it includes.
_PACKET = 1
_TIMESTAMP, _SEQUENCE_ID, _TRACK_EVENT, _INTERNED_DATA = 8, 10, 11, 12
_SEQUENCE_FLAGS, _TRACK_DESCRIPTOR = 13, 60
_ANNOTATION, _TYPE, _NAME_IID, _TRACK = 4, 9, 10, 11
_COUNTER_VALUE, _DOUBLE_VALUE, _FLOW, _LAST_FLOW = 30, 44, 47, 48
_UUID, _NAME, _PROCESS, _PARENT, _COUNTER, _ORDERING, _RANK, _DESCRIPTION = 1, 2, 3, 5, 8, 11, 12, 14
_PID, _PROCESS_NAME, _LABEL = 1, 6, 8
_EVENT_NAME, _ANNOTATION_NAME = 2, 3
_ANNOTATION_IID, _AS_INT, _AS_DOUBLE, _AS_TEXT = 1, 4, 5, 6
_UNIT, _UNIT_NAME = 3, 6

_BEGIN, _END, _INSTANT, _COUNT = 1, 2, 3, 4  # types of events
_IS_FIRST, _NEEDS_NAMES = 1, 2  # flags: names sent before are void; names sent before are needed
_BY_RANK, _BYTES = 3, 3  # an order of tracks, and a unit

_SEQUENCE = number(_SEQUENCE_ID, 1)
_IN_SEQUENCE = _SEQUENCE + number(_SEQUENCE_FLAGS, _NEEDS_NAMES)
_FIRST = message(_PACKET, _SEQUENCE, number(_SEQUENCE_FLAGS, _IS_FIRST | _NEEDS_NAMES))


def is_perfetto_trace(file: Path) -> bool:
    """Whether a file begins as a trace does that was written here."""
    with file.open("rb") as stream:
        return stream.read(len(_FIRST)) == _FIRST


class PerfettoTrace:
    """A trace that is being made; ``content`` has its bytes so far."""

    def __init__(self) -> None:
        self.content = bytearray(_FIRST)
        self._num_tracks = 0
        self._num_processes = 0
        self._names: dict[int, dict[str, int]] = {_EVENT_NAME: {}, _ANNOTATION_NAME: {}}
        self._new_names: list[bytes] = []
        self._body, self._note = cache(self._new_body), lru_cache(None, typed=True)(self._new_note)

    def process(self, name: str, label: str = "") -> int:
        """Add a process, which groups tracks."""
        self._num_processes += 1
        labels = [text(_LABEL, label)] if label else []
        who = message(_PROCESS, number(_PID, self._num_processes), text(_PROCESS_NAME, name), *labels)
        return self._describe(who)

    def track(self, name: str, parent: int, description: str = "") -> int:
        """Add a track below those of its parent that there are; tracks of one name there are shown as one."""
        return self._describe(number(_PARENT, parent), text(_NAME, name), *_description(description))

    def counter(self, name: str, parent: int, unit: str = "", description: str = "") -> int:
        """Add a track of a value that changes; ``unit`` is ``B`` for bytes."""
        kind = number(_UNIT, _BYTES) if unit == "B" else text(_UNIT_NAME, unit)
        return self._describe(
            number(_PARENT, parent),
            text(_NAME, name),
            message(_COUNTER, kind if unit else b""),
            *_description(description),
        )

    def notes(self, known: Mapping[str, int | float | str | None]) -> bytes:
        """Return what is known of slices or instants, as they take it; None is left out."""
        return b"".join(self._note(name, value) for name, value in known.items() if value is not None)

    def begin(self, track: int, at_ns: int, name: str, notes: bytes = b"") -> None:
        """Begin a slice, within the one on the track that has begun last and not ended."""
        self._event(at_ns, self._body(_BEGIN, track, name) + notes)

    def end(self, track: int, at_ns: int) -> None:
        """End the slice on the track that has begun last."""
        self._event(at_ns, self._body(_END, track))

    def instant(
        self,
        track: int,
        at_ns: int,
        name: str,
        notes: bytes = b"",
        leaves: int | None = None,
        arrives: int | None = None,
    ) -> None:
        """Add something that takes no time."""
        body = self._body(_INSTANT, track, name) + notes
        if leaves is not None:
            body += fixed64(_FLOW, leaves)
        if arrives is not None:
            body += fixed64(_LAST_FLOW, arrives)
        self._event(at_ns, body)

    def count(self, track: int, at_ns: int, value: float) -> None:
        """Say the value of a counter from now on."""
        number_of = number(_COUNTER_VALUE, value) if isinstance(value, int) else fixed64(_DOUBLE_VALUE, value)
        self._event(at_ns, self._body(_COUNT, track) + number_of)

    def _describe(self, *fields: bytes) -> int:
        self._num_tracks += 1
        uuid = self._num_tracks
        order = number(_ORDERING, _BY_RANK) + number(_RANK, uuid)
        described = message(_TRACK_DESCRIPTOR, number(_UUID, uuid), order, *fields)
        self.content += message(_PACKET, _SEQUENCE, described)
        return uuid

    def _new_body(self, kind: int, track: int, name: str = "") -> bytes:
        body = number(_TYPE, kind) + number(_TRACK, track)
        return body + self._name(_EVENT_NAME, _NAME_IID, name) if name else body

    def _name(self, kind: int, field: int, name: str) -> bytes:
        """Return the field that names something, which is sent with the next packet if it is new."""
        names = self._names[kind]
        if name not in names:
            names[name] = len(names) + 1
            self._new_names.append(message(kind, number(1, names[name]), text(2, name)))
        return number(field, names[name])

    def _new_note(self, name: str, value: int | float | str) -> bytes:
        content: bytes
        match value:
            case str():
                content = text(_AS_TEXT, value)
            case int():
                content = number(_AS_INT, value)
            case float():
                content = fixed64(_AS_DOUBLE, value)
        return message(_ANNOTATION, self._name(_ANNOTATION_NAME, _ANNOTATION_IID, name), content)

    def _event(self, at_ns: int, body: bytes) -> None:
        packet = number(_TIMESTAMP, at_ns) + _IN_SEQUENCE + message(_TRACK_EVENT, body)
        if self._new_names:
            packet += message(_INTERNED_DATA, *self._new_names)
            self._new_names.clear()
        self.content += message(_PACKET, packet)


def _description(words: str) -> list[bytes]:
    return [text(_DESCRIPTION, words)] if words else []


def lanes(times: Iterable[tuple[int, int]]) -> list[int]:
    """Return a lane for each time: the first that is free. Times are begins and ends, ordered by begin."""
    free_at: list[int] = []
    numbers = []
    for began, ended in times:
        lane = next((number for number, end in enumerate(free_at) if end <= began), len(free_at))
        if lane == len(free_at):
            free_at.append(ended)
        free_at[lane] = ended
        numbers.append(lane)
    return numbers
