"""The trace: the events of a run as plain records, and the hash of the records.

A stream is a sequence of msgpack objects. It starts with the map ``{"fedsim_trace": 1}``. A map ``{"kind":
name, "fields": [...]}`` introduces each kind of record before its first use; kinds are numbered from 0 in
that order. An array ``[number of the kind, instant in ns, value, ...]`` is a record. The hash covers
everything after the header, whether or not a stream is written: equal hashes mean equal names, fields,
instants and values.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

import msgpack

from fedsim.clock.loop import of_thread
from fedsim.clock.record_columns import Columns
from fedsim.clock.sleep_and_wait import now_ns
from fedsim.errors import DataError, RunError
from fedsim.quoting import MAX_SHOWN, shortened

Scalar = int | float | str | bool | None
Value = Scalar | Sequence[Scalar]
Listener = Callable[..., object]
"""Called with a record: its instant in ns, then its values."""

_FORMAT_KEY, _FORMAT = "fedsim_trace", 1
_HEADER = msgpack.packb({_FORMAT_KEY: _FORMAT})
_DIGESTED_AT_ONCE = 512
"""Records that are hashed at once: hashing each by itself costs several times as much."""

_READ_AT_ONCE = 1 << 20

LAST_NS = 2**63 - 1
"""The latest instant, 292 years: tables of records hold instants as signed 64-bit integers."""

_STAMPED = ("kind", "at_ns")


@dataclass(frozen=True)
class RecordKind:
    """A kind of record: a name, unique within a trace, and the names of its values."""

    name: str
    fields: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(set(self.fields)) < len(self.fields) or any(field in _STAMPED for field in self.fields):
            raise ValueError(
                f"fields of {self.name!r} must be distinct, and none of {_STAMPED}: {self.fields}"
            )


class Sink(Protocol):
    """Takes the bytes of a trace."""

    def write(self, content: bytes, /) -> object:
        """Write bytes."""


Row = tuple[Any, ...]
"""The instant of a record in ns, and its values: what a listener is called with."""

TogetherListener = Callable[[Columns], object]
"""Called with records of one kind that are added together."""


class Records(Protocol):
    """Records that can be listened to: as they are made, or as they were stored."""

    def listen(
        self, listeners: Mapping[str, Listener], together: Mapping[Listener, TogetherListener] | None = None
    ) -> Callable[[], None]:
        """Call functions with the records of some kinds; see :meth:`Trace.listen`."""


_Known = tuple[RecordKind, int, int, list[Listener]]
"""A kind with its number of fields, its number in the stream and its listeners."""


class Trace:
    """Hashes records and writes them to ``sink``, if there is one, which nobody closes here.

    With ``keep``, ``kept`` has a tuple ``(instant in ns, kind's name, *values)`` per record.
    """

    def __init__(self, sink: Sink | None = None, keep: bool = False) -> None:
        self.kept: list[tuple[Any, ...]] = []
        self.keep = keep
        self._sink = sink
        self._packer = msgpack.Packer()
        self._pack = self._packer.pack
        self._digest = _new_digest()
        self._undigested: list[bytes] = []
        self._num_digested = 0
        self._is_over = False
        self._kinds: dict[str, _Known] = {}
        self._listeners: defaultdict[str, list[Listener]] = defaultdict(list)
        self._together: dict[Listener, TogetherListener] = {}
        if sink is not None:
            sink.write(_HEADER)

    @property
    def count(self) -> int:
        """Number of records."""
        return self._num_digested + len(self._undigested)

    def record(self, kind: RecordKind, *values: Value) -> None:
        """Add a record at the current instant."""
        virtual = of_thread.loop
        self._add(kind, (now_ns() if virtual is None else virtual.now_ns, *values))

    def repeat(self, kind: RecordKind, row: Row) -> None:
        """Add a record at the instant at which it was made: its instant in ns, then its values."""
        self._add(kind, row)

    def record_together(self, groups: Sequence[tuple[RecordKind, Columns]], order: Sequence[int]) -> None:
        """Add records at instants that are not before those so far.

        Args:
            groups: Each kind with its records.
            order: The place of each record among those of all groups, in the order of the trace.
        """
        if self._is_over or any(kind.name not in self._kinds for kind, _ in groups):
            # Each kind is described before its first record.
            together = [(kind, row) for kind, columns in groups for row in columns.rows()]
            for place in order:
                self._add(*together[place])
            return
        numbered = list[tuple[Any, ...]]()
        for kind, columns in groups:
            _, num_fields, number, _ = self._kinds[kind.name]
            if len(columns.values) != num_fields + 1:
                raise _unfit(kind, columns.values)
            numbered += columns.rows(number)
        packed = self._packed_rows([numbered[place] for place in order], groups)
        self._catch_up()
        self._digest.update(packed)
        self._num_digested += len(order)
        if self._sink is not None:
            self._sink.write(packed)
        if self.keep:
            kept = [plain for kind, columns in groups for plain in _plain(kind, columns.rows())]
            self.kept += [kept[place] for place in order]
        for kind, columns in groups:
            for listener in self._listeners[kind.name]:
                if listener in self._together:
                    self._together[listener](columns)
                    continue
                for row in columns.rows():
                    listener(*row)

    def _packed_rows(self, rows: Sequence[Row], groups: Sequence[tuple[RecordKind, Columns]]) -> bytes:
        """Return numbered records one after the other: an array of all without its header."""
        try:
            packed: bytes = self._pack(rows)
        except (TypeError, OverflowError):
            for kind, columns in groups:
                try:
                    self._pack(list(columns.rows()))
                except (TypeError, OverflowError) as error:
                    raise _unstorable(kind, error) from error
            raise
        return packed[len(self._packer.pack_array_header(len(rows))) :]

    def _add(self, kind: RecordKind, row: Row) -> None:
        if self._is_over:
            return
        # Kinds are constants, so identity is enough here; comparing their fields would cost more.
        known = self._kinds.get(kind.name)
        if known is None or known[0] is not kind:
            known = self._introduce(kind)
        _, num_fields, number, listeners = known
        if len(row) != num_fields + 1 or row[0] > LAST_NS:
            raise _unfit(kind, row)
        try:
            packed = self._pack((number, *row))
        except (TypeError, OverflowError) as error:
            raise _unstorable(kind, error) from error
        undigested = self._undigested
        undigested.append(packed)
        if len(undigested) > _DIGESTED_AT_ONCE:
            self._catch_up()
        if self._sink is not None:
            self._sink.write(packed)
        if self.keep:
            self.kept += _plain(kind, (row,))
        for listener in listeners:
            listener(*row)

    def listen(
        self, listeners: Mapping[str, Listener], together: Mapping[Listener, TogetherListener] | None = None
    ) -> Callable[[], None]:
        """Call functions with the records of kinds; return a function that removes them.

        A listener copies the sequences that it keeps, since the recorder may change them later.

        Args:
            listeners: What to call, by kind.
            together: What to call instead of some of them with records that are added together.
        """
        stop, its = _listen(self._listeners, listeners), together or {}
        self._together |= its

        def stop_all() -> None:
            if self._is_over:
                return
            stop()
            for listener in its:
                del self._together[listener]

        return stop_all

    def end(self) -> None:
        """Take no more records: what still happens, such as a frame that arrives, is not part of the run.

        Listeners are forgotten: whoever has the trace, such as a result, would keep all of the run with them.
        """
        self._is_over = True
        for listeners in self._listeners.values():
            listeners.clear()
        self._together.clear()

    def hash(self) -> str:
        """Return the hash of all records so far: 32 hexadecimal characters."""
        self._catch_up()
        return self._digest.hexdigest()

    def _catch_up(self) -> None:
        self._digest.update(b"".join(self._undigested))
        self._num_digested += len(self._undigested)
        self._undigested.clear()

    def _introduce(self, kind: RecordKind) -> _Known:
        """Return the entry of a kind; the stream describes it before its first record."""
        if kind.name not in self._kinds:
            listeners = self._listeners[kind.name]
            self._kinds[kind.name] = kind, len(kind.fields), len(self._kinds), listeners
            packed = self._pack({"kind": kind.name, "fields": kind.fields})
            self._catch_up()
            self._digest.update(packed)
            if self._sink is not None:
                self._sink.write(packed)
        known = self._kinds[kind.name]
        if known[0] != kind:
            raise ValueError(
                f"two kinds of record are named {kind.name!r}, with the fields {known[0].fields} and "
                f"{kind.fields}: rename one"
            )
        self._kinds[kind.name] = known = kind, *known[1:]  # which is found by identity next time
        return known


def _unfit(kind: RecordKind, row: Sequence[Any]) -> Exception:
    if len(row) != len(kind.fields) + 1:
        return ValueError(
            f"{kind.name!r} has the fields {kind.fields}, but {len(row) - 1} value(s) were given"
        )
    return RunError(
        "virtual time has passed 292 years, and no record holds a later instant: give shorter durations, "
        "faster links and devices, or fewer rounds"
    )


def _unstorable(kind: RecordKind, error: Exception) -> TypeError:
    return TypeError(
        f"a record of {kind.name!r} has a value that no trace holds ({error}): write int(value) or "
        "float(value)"
    )


def _plain(kind: RecordKind, rows: Iterable[Row]) -> list[tuple[Any, ...]]:
    """Return records as they are kept."""
    return [
        (row[0], kind.name, *(tuple(value) if isinstance(value, list) else value for value in row[1:]))
        for row in rows
    ]


def _new_digest() -> hashlib.blake2b:
    return hashlib.blake2b(digest_size=16)


def _listen(
    listening: defaultdict[str, list[Listener]], listeners: Mapping[str, Listener]
) -> Callable[[], None]:
    for name, listener in listeners.items():
        listening[name].append(listener)

    def stop() -> None:
        for name, listener in listeners.items():
            listening[name].remove(listener)

    return stop


class StoredTrace:
    """The records of a stream, played to listeners."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._listeners: defaultdict[str, list[Listener]] = defaultdict(list)

    def listen(
        self, listeners: Mapping[str, Listener], together: Mapping[Listener, TogetherListener] | None = None
    ) -> Callable[[], None]:
        """Call functions with the records of some kinds, one by one; see :meth:`Trace.listen`."""
        return _listen(self._listeners, listeners)

    def play(self) -> None:
        """Call the listeners with all records."""
        for kind, record in stored_records(self._file):
            for listener in self._listeners.get(kind.name, ()):
                listener(*record[1:])


def stored_hash(file: BinaryIO) -> str:
    """Return the hash of a stream's records, as :meth:`Trace.hash` gave it."""
    digest = _new_digest()
    file.read(len(_HEADER))
    while piece := file.read(_READ_AT_ONCE):
        digest.update(piece)
    return digest.hexdigest()


def read_trace(file: BinaryIO) -> Iterator[dict[str, Any]]:
    """Yield the records of a stream, each as a map of ``kind``, ``at_ns`` and its fields by name.

    A stream that ends within a record, as after a crash, gives all whole records before.
    """
    return (as_map(kind, record) for kind, record in stored_records(file))


def as_map(kind: RecordKind, record: Sequence[Any]) -> dict[str, Any]:
    """Return a record of :func:`stored_records` as a map of ``kind``, ``at_ns`` and its fields by name."""
    return {"kind": kind.name, "at_ns": record[1], **dict(zip(kind.fields, record[2:], strict=True))}


def stored_records(file: BinaryIO) -> Iterator[tuple[RecordKind, list[Any]]]:
    """Yield the records of a stream as they are stored: the number of the kind, the instant in ns, values."""
    unpacker = msgpack.Unpacker(file)
    kinds: list[RecordKind] = []
    try:
        header = next(unpacker, None)
        if header != {_FORMAT_KEY: _FORMAT}:
            raise DataError(
                f"not a fedsim trace of format {_FORMAT}: it starts with {shortened(header, MAX_SHOWN)}"
            )
        for item in unpacker:
            if isinstance(item, dict):
                kinds.append(RecordKind(item["kind"], tuple(item["fields"])))
                continue
            kind = kinds[item[0]]
            if len(item) != len(kind.fields) + len(_STAMPED):
                raise ValueError(f"a record of {kind.name!r} has {len(item) - len(_STAMPED)} values")
            yield kind, item
    except (ValueError, TypeError, KeyError, IndexError, msgpack.UnpackException) as error:
        raise DataError(f"the trace is damaged: {error}") from error
