"""States as bytes: whole round trips, and nothing but states comes back; algorithms: test_over_http.py."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Literal, TypeVar

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from typing_extensions import TypeAliasType

from fedsim.algorithms.base import mirrored
from fedsim.engine.jobs import ClientSamples, InlineSamples, PublicSamples, Samples
from fedsim.errors import DecodeError
from fedsim.params import Model
from fedsim.runtime.clients.held import Held
from fedsim.runtime.purity import fingerprint
from fedsim.runtime.state_encoding import (
    WORD,
    Reader,
    StateLimits,
    Writer,
    decode,
    decode_held,
    encode,
    fits,
)
from fedsim.wire import ModelBroadcast


@dataclass(frozen=True)
class Page:
    model: Model
    notes: Mapping[str, tuple[int, ...]]
    by_client: Mapping[int, float]
    mirror: np.ndarray[Any, Any] | None = mirrored()  # noqa: RUF009
    split: Literal["train", "test"] = "train"
    samples: Samples | None = None
    anything: Any = None


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
    before = page(samples=InlineSamples(np.zeros((0, 3), np.float32)), anything=(None, np.True_, Positive(1)))
    after = decode(encode(before), CLASSES)
    assert fingerprint(after) == fingerprint(before)
    assert type(after.anything[1]) is np.bool_
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
scalars = st.floats(width=32).map(np.float32) | st.integers(-9, 9).map(np.int64)
values = st.recursive(
    plain | arrays | scalars,
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


@pytest.mark.parametrize(
    ("error", "said", "values"),
    [
        (TypeError, "list", [[1]]),
        (TypeError, "set", [{1, 2}]),
        (TypeError, "bytes", [b"bytes"]),
        (TypeError, r"state\[1\].x: a SimpleNamespace", [(1, {"x": SimpleNamespace()})]),
        (TypeError, "a key is", [{(1,): 2}, {True: 2}]),
        (TypeError, "dtype", [np.array(["text"]), np.array([None])]),
        (TypeError, "builtin", [len]),
        (ValueError, "state", [2**64, -(2**63) - 1, "\ud800"]),
    ],
)
def test_what_cannot_travel_is_named(error: type[Exception], said: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(error, match=said):
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


NONE_LEFT = [["<f4", [0], 0]]
REFUSED: dict[str, list[bytes]] = {
    "no state": [b"", b"x" * 100],
    "damaged: the bytes end within it": [HEAD, _bytes(None)[:-1]],
    "damaged": [HEAD + b"\xc0\xc1", _bytes({1: 2}), _bytes(b"long"), _bytes(msgpack.ExtType(5, b"long"))],
    "damaged: an extension of type 5": [_bytes(msgpack.ExtType(5, b""))],
    "left over": [_bytes(None) + b"\0"],
    "none of the values": [
        *map(_bytes, ([], ["x"], b"", {}, ["r"])),
        *(_bytes(tree, NONE_LEFT) for tree in (["a", True], ["s", 0])),
    ],
    "without a value": [_bytes(["m", 1])],
    "twice": [_bytes(["m", "a", 1, "a", 2])],
    "no key": [_bytes(["m", 1.5, 1]), _bytes(["m", ["t"], 1])],
    "none of the classes": [_bytes(["r", ["t"]]), _bytes(["r", "builtins.print"])],
    "has the fields": [_bytes(["r", PAGE, "model", 1])],
    "a str where": [_bytes(["r", POSITIVE, "number", "1"])],
    "a bool where": [_bytes(["r", POSITIVE, "number", True])],
    "not below 0": [_bytes(["r", POSITIVE, "number", -1])],
    "no array 0": [_bytes(["a", 0])],
    "no array -1": [_bytes(["a", -1], NONE_LEFT)],
    "array 0 belongs to nothing": [_bytes(None, NONE_LEFT)],
    # What else is no array: tests/wire/test_decode.py.
    "a bin of 0 bytes, the envelope says 4": [_bytes(["a", 0], [["<f4", [1], 4]])],
    "the frame ends at": [_bytes(["a", 0], [["<f4", [1], 4]], bytes(4))[:-1]],
    "'<c8' is none": [_bytes(["a", 0], [["<c8", [0], 0]])],
}


@pytest.mark.parametrize("said", REFUSED)
def test_anything_else_is_refused(said: str) -> None:
    for data in REFUSED[said]:
        with pytest.raises(DecodeError, match=said):
            decode(data, CLASSES)


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


MOMENTUM = {"train": {"momentum/a": 1.0}}
OPTIMISERS: tuple[Any, ...] = (None, (), {"train": np.zeros(3)}, {0: {}}, MOMENTUM, {"a": {"b": {"c": 1}}})
OLDER = _bytes(["r", f"{Held.__module__}.Held", *("dispatch", 0, "merged", None, "otherwise", None)])


@pytest.mark.parametrize(
    ("data", "said"),
    [
        *((encode(Held(0, None, None, optimisers)), "Held|optimisers") for optimisers in OPTIMISERS),
        (OLDER, r"has the fields .*'optimisers'"),  # of a state from before a field was added
        (encode((1, 2)), "a tuple where what a client holds belongs"),
    ],
)
def test_what_no_client_holds_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(DecodeError, match=said):
        decode_held(data, ())


T = TypeVar("T", bound=int)


@pytest.mark.parametrize(
    ("hint", "good", "bad"),
    [
        (int, [1], [True]),
        (bool, [True], [1]),
        (float, [1, np.float32(1)], ["1"]),
        (int | None, [None], ["x"]),
        (Literal["a", "b"], ["a"], ["c"]),
        (TypeAliasType("word", Literal["a", "b"]), ["a"], ["c"]),
        (tuple[int, ...], [(1, 2)], [(1, "2")]),
        (tuple[int, str], [(1, "2")], [(1,)]),
        (Mapping[str, int], [{"a": 1}], [{1: 1}]),
        (np.ndarray[Any, np.dtype[np.float64]], [np.zeros(1)], [np.zeros(1, np.int64)]),
        (np.ndarray[Any, Any], [np.zeros(1)], [1]),
        (T, [1], ["x"]),
        (Any, [object()], []),
    ],
)
def test_annotations(hint: Any, good: list[Any], bad: list[Any]) -> None:
    assert [fits(value, hint) for value in (*good, *bad)] == [True] * len(good) + [False] * len(bad)


def test_what_is_one_object_is_one_object_again() -> None:
    model = Model("mlp", {"w": np.ones(2, np.float32)}, {})
    message = ModelBroadcast.of(model)
    limits = StateLimits()
    writer = Writer(limits, {id(KNOWN): ("start", 3)})
    tree = msgpack.unpackb(
        msgpack.packb(writer.tree((message, model, (model, message), KNOWN), "state")), use_list=False
    )
    reader = Reader(writer.arrays, (Model, ModelBroadcast), limits, lambda label, variant: (label, variant))
    read, its_model, (again, same), known = reader.value(tree, "state")
    assert read is same
    assert read.model is its_model is again
    assert known == ("start", 3)


KNOWN = Model("mlp", {}, {})
