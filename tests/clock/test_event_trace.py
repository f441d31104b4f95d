"""The trace, its hash and its stream."""

import hashlib
import io
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim import clock
from fedsim.clock import RecordKind, StoredTrace, Trace, read_trace
from fedsim.clock.event_trace import stored_hash
from fedsim.clock.record_columns import Columns
from fedsim.errors import DataError, RunError

SEND = RecordKind("send", ("client", "bytes"))
MERGE = RecordKind("merge", ("clients", "loss", "note"))
EMPTY = RecordKind("empty", ())

scalars = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text()
)
values = scalars | st.lists(scalars, max_size=4)


def record_all(trace: Trace, records: Sequence[tuple[float, RecordKind, tuple[Any, ...]]]) -> Trace:
    async def main() -> None:
        for sleep_s, kind, fields in records:
            await clock.sleep_for(sleep_s)
            trace.record(kind, *fields)

    clock.run(main())
    return trace


EXAMPLE = [
    (0.0, SEND, (3, 1000)),
    (1.5, MERGE, ([3, 4], 0.25, "first")),
    (0.0, SEND, (4, 10)),
    (1e9, EMPTY, ()),
]


def test_the_stream_names_everything() -> None:
    sink = io.BytesIO()
    trace = record_all(Trace(sink), EXAMPLE)
    sink.seek(0)
    assert list(read_trace(sink)) == [
        {"kind": "send", "at_ns": 0, "client": 3, "bytes": 1000},
        {"kind": "merge", "at_ns": 1_500_000_000, "clients": [3, 4], "loss": 0.25, "note": "first"},
        {"kind": "send", "at_ns": 1_500_000_000, "client": 4, "bytes": 10},
        {"kind": "empty", "at_ns": 10**18 + 1_500_000_000},
    ]
    assert trace.count == 4
    assert trace.kept == []


def test_the_stream_is_plain_msgpack_and_the_hash_is_of_its_bytes() -> None:
    sink = io.BytesIO()
    trace = record_all(Trace(sink), EXAMPLE[:2])
    assert list(msgpack.Unpacker(io.BytesIO(sink.getvalue()))) == [
        {"fedsim_trace": 1},
        {"kind": "send", "fields": ["client", "bytes"]},
        [0, 0, 3, 1000],
        {"kind": "merge", "fields": ["clients", "loss", "note"]},
        [1, 1_500_000_000, [3, 4], 0.25, "first"],
    ]
    body = sink.getvalue().removeprefix(msgpack.packb({"fedsim_trace": 1}))
    assert trace.hash() == hashlib.blake2b(body, digest_size=16).hexdigest()
    assert len(trace.hash()) == 32


def test_kept_records_are_plain_tuples_that_later_changes_do_not_reach() -> None:
    clients = [3, 4]
    trace = record_all(Trace(keep=True), [(1.0, MERGE, (clients, 0.5, None))])
    clients.append(5)
    assert trace.kept == [(1_000_000_000, "merge", (3, 4), 0.5, None)]


def test_the_hash_does_not_depend_on_sink_or_keep() -> None:
    assert record_all(Trace(), EXAMPLE).hash() == record_all(Trace(io.BytesIO(), keep=True), EXAMPLE).hash()


def test_a_trace_that_has_ended_takes_no_more_records() -> None:
    sink, heard = io.BytesIO(), list[Any]()
    trace = record_all(Trace(sink, keep=True), EXAMPLE[:2])
    hear = heard.append
    stop = trace.listen({"send": lambda *record: hear(record), "merge": hear}, {hear: hear})
    before = trace.hash(), trace.count, len(trace.kept), sink.getvalue()
    trace.end()
    record_all(trace, EXAMPLE[2:])
    trace.record_together([(SEND, Columns(1, [np.array([2]), 1, 1]))], [0])
    stop()
    assert (trace.hash(), trace.count, len(trace.kept), sink.getvalue(), heard) == (*before, [])


def test_listeners_hear_of_the_records_of_their_kinds_until_they_stop() -> None:
    trace, heard, sent = Trace(), list[tuple[Any, ...]](), list[tuple[Any, ...]]()

    def hear(kind: str, *record: Any) -> None:
        heard.append((kind, *record))

    stop = trace.listen({kind: partial(hear, kind) for kind in ("send", "merge", "never")})
    trace.listen({"send": lambda *record: sent.append(record)})
    record_all(trace, EXAMPLE[:2])
    assert heard == [("send", 0, 3, 1000), ("merge", 1_500_000_000, [3, 4], 0.25, "first")]
    assert sent == [(0, 3, 1000)]
    assert trace.hash() == record_all(Trace(), EXAMPLE[:2]).hash()
    stop()
    record_all(trace, EXAMPLE)
    assert len(heard) == 2


async def test_a_refused_record_is_not_heard_of() -> None:
    trace, heard = Trace(), list[tuple[Any, ...]]()
    trace.listen({"send": lambda *record: heard.append(record)})
    with pytest.raises(ValueError, match="1 value"):
        trace.record(SEND, 1)
    assert heard == []


@pytest.mark.parametrize(
    "change",
    [
        lambda records: records[:-1],
        lambda records: [*records[:2], records[3], records[2]],
        lambda records: [(0.1, *records[0][1:]), *records[1:]],
        lambda records: [(0.0, SEND, (3, 1001)), *records[1:]],
        lambda records: [(0.0, SEND, (3, 1000.0)), *records[1:]],
        lambda records: [(0.0, RecordKind("sent", SEND.fields), (3, 1000)), *records[1:]],
        lambda records: [*records[:3], (1e9, RecordKind("empty", ("field",)), (None,))],
    ],
)
def test_any_change_changes_the_hash(change: Callable[[list[Any]], list[Any]]) -> None:
    assert record_all(Trace(), change(EXAMPLE)).hash() != record_all(Trace(), EXAMPLE).hash()


@given(st.lists(st.tuples(values, values, values), max_size=5))
def test_what_is_read_is_what_was_recorded(records: list[tuple[Any, Any, Any]]) -> None:
    sink = io.BytesIO()
    record_all(Trace(sink), [(0.0, MERGE, fields) for fields in records])
    sink.seek(0)
    assert [(r["clients"], r["loss"], r["note"]) for r in read_trace(sink)] == records


async def test_faulty_records_are_refused_and_leave_no_mark() -> None:
    trace = Trace()
    trace.record(SEND, 1, 2)
    before = trace.hash()
    with pytest.raises(ValueError, match="3 value"):
        trace.record(SEND, 1, 2, 3)
    with pytest.raises(TypeError, match=r"int\(value\)"):
        trace.record(SEND, 1, np.int64(2))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="'send'"):
        trace.record(SEND, 1, 2**70)
    with pytest.raises(ValueError, match="rename"):
        trace.record(RecordKind("send", ("other",)), 1)
    assert (trace.hash(), trace.count) == (before, 1)
    trace.record(RecordKind("send", SEND.fields), 3, 4)  # equal to a known kind: the same kind
    assert trace.count == 2


def test_fields_must_be_distinct_and_free() -> None:
    with pytest.raises(ValueError, match="distinct"):
        RecordKind("bad", ("a", "a"))
    with pytest.raises(ValueError, match="at_ns"):
        RecordKind("bad", ("at_ns",))


def test_a_truncated_stream_gives_its_whole_records() -> None:
    sink = io.BytesIO()
    record_all(Trace(sink), EXAMPLE)
    cut = sink.getvalue()[:-3]
    assert [record["kind"] for record in read_trace(io.BytesIO(cut))] == ["send", "merge", "send"]


def test_a_stored_trace_is_heard_again() -> None:
    sink = io.BytesIO()
    live, stored = Trace(sink), StoredTrace(sink)
    heard: dict[str, list[tuple[Any, ...]]] = {"live": [], "stored": []}
    live.listen({"send": lambda *values: heard["live"].append(values)})
    stop = stored.listen({"send": lambda *values: heard["stored"].append(values)})
    record_all(live, EXAMPLE)
    sink.seek(0)
    stored.play()
    stop()
    sink.seek(0)
    stored.play()
    assert heard["stored"] == heard["live"] == [(0, 3, 1000), (1_500_000_000, 4, 10)]


def test_the_hash_of_a_stream_is_that_of_the_trace() -> None:
    sink = io.BytesIO()
    trace = record_all(Trace(sink), EXAMPLE)
    sink.seek(0)
    assert stored_hash(sink) == trace.hash()


@pytest.mark.parametrize(
    "content",
    [b"", b"PAR1", msgpack.packb({"fedsim_trace": 2}), msgpack.packb([0, 1])],
)
def test_other_files_are_refused(content: bytes) -> None:
    with pytest.raises(DataError, match="not a fedsim trace of format 1"):
        list(read_trace(io.BytesIO(content)))


@pytest.mark.parametrize("rest", [[[0, 1, 2]], [{"kind": "a", "fields": ["b"]}, [0, 1]], [{"kind": 1}], [7]])
def test_damage_is_told(rest: list[Any]) -> None:
    content = b"".join(msgpack.packb(item) for item in [{"fedsim_trace": 1}, *rest])
    with pytest.raises(DataError, match="damaged"):
        list(read_trace(io.BytesIO(content)))


def test_no_record_is_made_later_than_one_can_hold() -> None:
    async def record_at(ns: int) -> list[tuple[Any, ...]]:
        await clock.sleep_until(ns / 1e9)
        trace = Trace(keep=True)
        trace.record(EMPTY)
        return trace.kept

    assert clock.run(record_at(2**62)) == [(2**62, "empty")]
    with pytest.raises(RunError, match="292 years"):
        clock.run(record_at(2**63))


def test_records_that_are_added_together_are_those_that_are_added_one_by_one() -> None:
    start, end = RecordKind("start", ("client", "what")), RecordKind("end", ("client",))
    groups = [
        (start, Columns(2, [np.array([1, 2]), np.array([7, 8]), "x"])),
        (end, Columns(1, [np.array([2]), np.array([7])])),
    ]
    made: list[Any] = []
    for together in (False, True):
        sink, heard, columns = io.BytesIO(), list[Any](), list[Any]()
        trace = Trace(sink, keep=True)
        trace.listen({"start": lambda *row, heard=heard: heard.append(row)})
        trace.listen({"end": _unheard}, {_unheard: columns.append})
        for _ in range(2):  # the first time the kinds are introduced
            if together:
                trace.record_together(groups, [0, 2, 1])
            else:
                trace._add(start, (1, 7, "x"))
                trace._add(end, (2, 7))
                trace._add(start, (2, 8, "x"))
        assert heard == [(1, 7, "x"), (2, 8, "x")] * 2
        assert [list(its.rows()) for its in columns] == [[(2, 7)]] * together
        made.append((trace.hash(), trace.kept, trace.count, sink.getvalue()))
    assert made[0] == made[1]


def _unheard(*row: Any) -> None:
    """Hear a record that is added by itself."""


def test_columns_that_are_no_records_of_their_kind_are_refused() -> None:
    kind = RecordKind("start", ("client",))
    trace = Trace()
    trace._add(kind, (0, 1))
    with pytest.raises(ValueError, match=r"'start' has the fields .*, but 0 value"):
        trace.record_together([(kind, Columns(1, [np.array([1])]))], [0])
    with pytest.raises(TypeError, match="a value that no trace holds"):
        trace.record_together([(kind, Columns(1, [np.array([1]), object()]))], [0])
