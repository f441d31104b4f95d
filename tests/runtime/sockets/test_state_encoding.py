"""States as bytes: whole round trips, and nothing but states comes back; algorithms: test_over_http.py."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedsim.algorithms.base import mirrored
from fedsim.engine.jobs import ClientSamples, InlineSamples, PublicSamples, Samples
from fedsim.errors import DecodeError
from fedsim.params import Model
from fedsim.runtime.clients.host import Held
from fedsim.runtime.purity import fingerprint
from fedsim.runtime.sockets.state_encoding import WORD, StateLimits, decode, decode_held, encode


@dataclass(frozen=True)
class Page:
    """A state with everything in it."""

    model: Model
    notes: Mapping[str, tuple[int, ...]]
    by_client: Mapping[int, float]
    mirror: np.ndarray[Any, Any] | None = mirrored()  # noqa: RUF009
    split: Literal["train", "test"] = "train"
    samples: Samples | None = None
    anything: Any = None


@dataclass
class Loose:
    number: int = 0


@dataclass(frozen=True, slots=True)
class Positive:
    number: int

    def __post_init__(self) -> None:
        if self.number < 0:
            raise ValueError("not below 0")


CLASSES = (Page, Positive, Model, ClientSamples, InlineSamples, PublicSamples)


def page(**changes: Any) -> Page:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    model = Model("mlp", {"b": values, "a": values + 1}, {"n": np.array(3)})
    return dataclasses.replace(Page(model, {"z": (1, 2), "a": ()}, {7: 0.5, -1: math.inf}, values), **changes)


def test_a_record_comes_back_whole() -> None:
    before = page(samples=InlineSamples(np.zeros((0, 3), np.float32)), anything=(None, True, Positive(1)))
    after = decode(encode(before), CLASSES)
    assert fingerprint(after) == fingerprint(before)
    assert list(after.model.params) == ["b", "a"]
    assert list(after.by_client) == [7, -1]
    assert after.model.digest() == before.model.digest()
    for array in (*after.model.params.values(), after.mirror, after.samples.x):
        assert not array.flags.writeable


def test_an_array_travels_once() -> None:
    large = np.zeros(10_000, np.float64)
    once, twice = encode((large,)), encode((large, {"again": large}))
    assert len(twice) < len(once) + 100
    one, other = decode(twice, ())
    assert one is other["again"]


NAMES = ("?", "<i1", "<u2", ">i4", "<i8", "<u8", "<f2", "<f4", ">f8")
arrays = hnp.arrays(
    st.sampled_from([np.dtype(name) for name in NAMES]), hnp.array_shapes(min_dims=0, min_side=0, max_side=4)
)
plain = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text()
values = st.recursive(
    plain | arrays,
    lambda inner: (
        st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers(0, 9), inner, max_size=3)
        | inner.map(lambda item: page(anything=item))
    ),
    max_leaves=8,
)


@given(values)
def test_any_value_comes_back(value: Any) -> None:
    data = encode(value)
    after = decode(data, CLASSES)
    assert encode(after) == data
    assert _like(after) == _like(value)


def _like(value: Any) -> Any:
    """Return a text that tells values apart, but not byte orders."""
    if isinstance(value, np.ndarray):
        value = value.astype(value.dtype.newbyteorder("="))
        return "array", value.dtype.name, value.shape, value.tobytes()
    if isinstance(value, tuple):
        return tuple(map(_like, value))
    if isinstance(value, Mapping):
        return [(name, _like(item)) for name, item in value.items()]
    if dataclasses.is_dataclass(value):
        return type(value), [_like(getattr(value, field.name)) for field in dataclasses.fields(value)]
    return type(value), repr(value)


def test_a_scalar_of_numpy_keeps_its_type() -> None:
    for number in (np.float32(0.1), np.int64(-3), np.bool_(True), np.float64("nan")):
        after = decode(encode((number,)), ())[0]
        assert type(after) is type(number)
        assert after.tobytes() == number.tobytes()


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([1], "list"),
        ({1, 2}, "set"),
        (b"bytes", "bytes"),
        ((1, {"x": Loose()}), r"state\[1\].x: a Loose"),
        ({(1,): 2}, "a key is"),
        ({True: 2}, "a key is"),
        (np.array(["text"]), "dtype"),
        (np.array([None]), "dtype"),
        (len, "builtin"),
    ],
)
def test_what_cannot_travel_is_named(value: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        encode(value)


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, "\ud800"])
def test_what_does_not_fit_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="state"):
        encode(value)


def test_limits_hold_on_both_sides() -> None:
    deep: Any = ()
    for _ in range(40):
        deep = (deep,)
    with pytest.raises(ValueError, match="deeper"):
        encode(deep)
    with pytest.raises(DecodeError, match="deeper"):
        decode(encode(deep, StateLimits(depth=50)), ())
    long = encode(tuple(range(100)))
    with pytest.raises(DecodeError, match="damaged: 101 exceeds"):
        decode(long, (), StateLimits(values=100))
    with pytest.raises(DecodeError, match="more values"):
        decode(encode(((1, 2), (3, 4))), (), StateLimits(values=6))
    with pytest.raises(DecodeError, match="limit is 10"):
        decode(long, (), StateLimits(frame_bytes=10))
    with pytest.raises(DecodeError, match="structure"):
        decode(long, (), StateLimits(envelope_bytes=10))
    with pytest.raises(ValueError, match="bytes"):
        encode(np.zeros(100), StateLimits(frame_bytes=100))


HEAD = b"\x93" + msgpack.packb(WORD)


def _bytes(tree: Any, described: Any = (), tail: bytes = b"") -> bytes:
    """Return what a sender may claim; ``tail`` is the bytes of one array."""
    head = HEAD + msgpack.packb(tree) + msgpack.packb(described)
    return head + b"\xc0" * (-(len(head) + 2) % 16) + msgpack.packb(tail) if described else head


PAGE = f"{__name__}.Page"
POSITIVE = f"{__name__}.Positive"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "no state"),
        (b"x" * 100, "no state"),
        (HEAD, "damaged: the bytes end within it"),
        (_bytes(None)[:-1], "damaged: the bytes end within it"),
        (HEAD + b"\xc0\xc1", "damaged"),
        (_bytes(None) + b"\0", "left over"),
        (_bytes([]), "none of the values"),
        (_bytes(["x"]), "none of the values"),
        (_bytes(b""), "none of the values"),
        (_bytes({}), "none of the values"),
        (_bytes({1: 2}), "damaged"),
        (_bytes(b"long"), "damaged"),
        (_bytes(msgpack.ExtType(5, b"")), "damaged: an extension of type 5"),
        (_bytes(msgpack.ExtType(5, b"long")), "damaged"),
        (_bytes(["m", 1]), "without a value"),
        (_bytes(["m", "a", 1, "a", 2]), "twice"),
        (_bytes(["m", 1.5, 1]), "no key"),
        (_bytes(["m", ["t"], 1]), "no key"),
        (_bytes(["r"]), "none of the values"),
        (_bytes(["r", ["t"]]), "none of the classes"),
        (_bytes(["r", "builtins.print"]), "none of the classes"),
        (_bytes(["r", PAGE, "model", 1]), "has the fields"),
        (_bytes(["r", POSITIVE, "number", "1"]), "a str where"),
        (_bytes(["r", POSITIVE, "number", True]), "a bool where"),
        (_bytes(["r", POSITIVE, "number", -1]), "not below 0"),
        (_bytes(["a", 0]), "no array 0"),
        (_bytes(["a", -1], [["<f4", [0], 0]]), "no array -1"),
        (_bytes(["a", True], [["<f4", [0], 0]]), "none of the values"),
        (_bytes(["s", 0], [["<f4", [0], 0]]), "none of the values"),
        (_bytes(None, [["<f4", [0], 0]]), "array 0 belongs to nothing"),
        (_bytes(["a", 0], [["<f4", [1], 4]]), "a bin of 0 bytes, the envelope says 4"),
        (_bytes(["a", 0], [["<f4", [1], 4]], bytes(4))[:-1], "the frame ends at"),
        (_bytes(["a", 0], [["<f4", [1], 3]]), "3 bytes for <f4"),
        (_bytes(["a", 0], [["<c8", [0], 0]]), "dtype '<c8' is none"),
        (_bytes(["a", 0], [["|O", [0], 0]]), r"dtype '\|O' is none"),
        (_bytes(["a", 0], [["<f4", [-1], -4]]), "-1 is no size"),
        (_bytes(["a", 0], [["<f4", [2**62], 2**64 - 1]]), "is no size"),
        (_bytes(["a", 0], [["<f4", [0] + [50] * 8, 0]]), "absurd"),
        (_bytes(["a", 0], ["<f4"]), "is not"),
        (_bytes(["a", 0], 3), "is not a list"),
    ],
)
def test_anything_else_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(DecodeError, match=said):
        decode(data, CLASSES)


def test_padding_and_truth_values_are_looked_at() -> None:
    data = encode((np.array([True, False]), None))
    assert decode(data, ())[0].tolist() == [True, False]
    with pytest.raises(DecodeError, match="neither 0 nor 1"):
        decode(data[:-1] + b"\2", ())
    at = len(data) - 5
    assert data[at] == 0xC0  # before the array
    with pytest.raises(DecodeError, match="neither nil"):
        decode(data[:at] + b"\1" + data[at + 1 :], ())


@given(st.data())
def test_spoilt_bytes_are_a_state_or_a_decode_error(data: Any) -> None:
    whole = bytearray(encode(page(samples=PublicSamples(np.arange(3)), anything=Positive(3))))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(len(HEAD), len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(whole)) | st.just(len(whole)))
    try:
        decode(bytes(whole[:cut]), CLASSES)
    except DecodeError as error:
        assert len(str(error)) < 1000  # noqa: PT017


def test_annotations_that_cannot_be_resolved_ask_for_nothing() -> None:
    cls: Any = dataclass(frozen=True)(type("Odd", (), {"__annotations__": {"x": "Nowhere"}}))
    assert decode(encode(cls(3)), (cls,)).x == 3


def test_what_optimisers_hold_comes_back() -> None:
    kept = {"'train' 'model' 'mlp'": {"first/a": np.arange(3, dtype=np.float32), "steps": np.array(2.0)}}
    held = Held(4, page(), None, kept)
    data = encode(held)
    after = decode_held(data, CLASSES)
    assert fingerprint(after) == fingerprint(held)
    assert encode(after) == data
    assert decode_held(encode(Held(0, None, None)), ()).optimisers == {}


@pytest.mark.parametrize(
    "optimisers",
    [None, (), {"train": np.zeros(3)}, {0: {}}, {"train": {"momentum/a": 1.0}}, {"train": {"a": {"b": 1}}}],
)
def test_what_no_optimiser_holds_is_refused(optimisers: Any) -> None:
    with pytest.raises(DecodeError, match=r"Held|optimisers"):
        decode_held(encode(Held(0, None, None, optimisers)), ())


def test_what_is_held_has_all_its_fields() -> None:
    """Such as a state from before a field was added."""

    @dataclass(frozen=True)
    class Older:
        dispatch: int
        merged: Any
        otherwise: Any

    Older.__module__, Older.__qualname__ = Held.__module__, Held.__qualname__
    with pytest.raises(DecodeError, match=r"has the fields .*'optimisers'"):
        decode_held(encode(Older(0, None, None)), ())
    with pytest.raises(DecodeError, match="a tuple where what a client holds belongs"):
        decode_held(encode((1, 2)), ())
