from hypothesis import given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket

from fedsim.timeline.perfetto_trace import fixed64, lanes, message, number, text, varint


def test_the_examples_of_the_format() -> None:
    assert number(1, 150) == b"\x08\x96\x01"
    assert text(2, "testing") == b"\x12\x07testing"
    assert message(3, number(1, 150)) == b"\x1a\x03\x08\x96\x01"
    assert fixed64(1, 1) == b"\x09" + b"\x01" + bytes(7)
    assert fixed64(1, 1.0) == b"\x09" + bytes(6) + b"\xf0\x3f"
    assert varint(-2) == b"\xfe" + b"\xff" * 8 + b"\x01"


@given(st.integers(0, 2**64 - 1))
def test_whole_numbers_are_those_of_protobuf(value: int) -> None:
    assert number(8, value) == TracePacket(timestamp=value).SerializeToString()


def test_what_overlaps_lies_side_by_side() -> None:
    assert lanes([(0, 10), (2, 5), (3, 4), (5, 9), (10, 11), (10, 10)]) == [0, 1, 2, 1, 0, 1]
    assert lanes([]) == []
