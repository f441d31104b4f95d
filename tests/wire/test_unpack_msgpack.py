"""What reading takes is bounded by the bytes, whatever these claim."""

import tracemalloc
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.errors import DecodeError
from fedsim.wire import COMMON, SERVER, Kinds, ModelBroadcast, decode, pack
from fedsim.wire.unpack_msgpack import unpack

LIMITS: dict[str, Any] = {
    "where": "it",
    "max_bytes": 2**18,
    "str_bytes": 4096,
    "array_items": 4096,
    "map_items": 4096,
}


def read(data: bytes) -> tuple[Any, int]:
    return unpack(data, **LIMITS)


def peak_bytes(data: bytes) -> int:
    """Return the memory that reading takes, beside the bytes read."""
    tracemalloc.start()
    try:
        read(data)
    except DecodeError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak


CLAIMS = {
    "nested arrays": b"\xdc\x10\x00" * 1000,
    "nested wide arrays": b"\xdd\x00\x00\x10\x00" * 1000,
    "nested maps": b"\xde\x10\x00\xa0" * 600,
    "nested wide maps": b"\xdf\x00\x00\x10\x00\xa1a" * 500,
    "a string": b"\xdb\x7f\xff\xff\xff" + b"a" * 100,
    "raw bytes": b"\xc6\x7f\xff\xff\xff" + b"a" * 100,
    "an extension": b"\xc9\x7f\xff\xff\xff\x01" + b"a" * 100,
    "an array": b"\xdd\xff\xff\xff\xff",
    "a map": b"\xdf\xff\xff\xff\xff",
}
SMALL = {
    "empty maps": b"\x80",
    "maps": b"\x81\xa0\xc0",
    "empty arrays": b"\x90",
    "arrays": b"\x91" * 60 + b"\xc0",
    "pairs": b"\x92\xd0\x80\xc0",
    "numbers": b"\xd0\x80",
    "wide numbers": b"\xcd\x7f\x00",
    "texts": b"\xa2ab",
    "other texts": b"\xa3\xe2\x82\xac",
    "texts of any letter": b"\xa7abc\xf0\x9f\x92\x96",
    "maps of maps": b"\x82\xa1a\x80\xa1b\x80",
}


@pytest.mark.parametrize("data", CLAIMS.values(), ids=CLAIMS)
def test_nothing_is_made_of_what_is_claimed(data: bytes) -> None:
    with pytest.raises(DecodeError, match=r"it: the bytes end within it|it: nested too deeply"):
        read(data)
    assert peak_bytes(data) < 400_000


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=40) | st.dictionaries(st.text(max_size=5), inner, max_size=20),
)


def tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: tuples(item) for key, item in value.items()}
    return tuple(map(tuples, value)) if isinstance(value, list) else value


@given(values, st.binary(max_size=4))
def test_what_is_sound_is_read_as_it_is(value: Any, after: bytes) -> None:
    data = msgpack.packb(value)
    made, length = read(data + after)
    assert (repr(made), length) == (repr(tuples(value)), len(data))


@given(st.lists(st.sampled_from([*CLAIMS.values(), *SMALL.values()]) | st.binary(max_size=20), max_size=200))
def test_hostile_bytes_take_little(pieces: list[bytes]) -> None:
    for data in (b"".join(pieces), b"\xdc\x10\x00" + b"".join(pieces) * 20):
        assert peak_bytes(data) <= 96 * len(data) + 10**6


def test_a_frame_is_bounded_as_a_whole() -> None:
    whole = pack(ModelBroadcast("m", {}, {})).frame(sender=SERVER, receiver=0, round=0, exchange="").join()
    assert whole.count(b"\x80") >= 2
    for nested in (b"\xdc\x10\x00" * 1000, b"\x80" * 200_000):
        frame = whole.replace(b"\x80", nested, 1)
        tracemalloc.start()
        with pytest.raises(DecodeError):
            decode(frame, Kinds(COMMON))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak <= 96 * len(frame) + 10**6
