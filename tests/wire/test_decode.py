"""Hostile frames made by hand: each is one DecodeError that says where and what."""

import tracemalloc
from collections.abc import Mapping
from typing import Any

import msgpack
import numpy as np
import pytest

from fedsim.errors import DecodeError
from fedsim.params import Array, Tree
from fedsim.wire import COMMON, SERVER, Kinds, Limits, Message, counted, decode, message, pack


@message("test")
class Every(Message):
    yes: bool
    whole: int
    real: float
    word: str
    maybe: int | None
    grid: Array
    tree: Tree = counted()
    nested: Mapping[str, Tree] = counted()


KINDS = Kinds([*COMMON, Every])
FIELDS = {
    "yes": True,
    "whole": -3,
    "real": 0.5,
    "word": "w",
    "maybe": None,
    "grid": 0,
    "tree": {"a": 1},
    "nested": {"x": {"b": 2}},
}
ARRAYS = [["<f4", [2, 2], 16], ["|b1", [3], 3], ["<i8", [], 8]]
DATA = [bytes(16), b"\1\0\1", bytes(8)]
ENVELOPE = {
    "fedsim": 1,
    "kind": "test",
    "sender": 5,
    "receiver": -1,
    "round": 2,
    "exchange": "train",
    "fields": FIELDS,
    "arrays": ARRAYS,
}


def frame(
    head: bytes | None = None, data: list[bytes] = DATA, padding: bytes = b"\xc0", **change: Any
) -> bytes:
    """Build a frame independently of fedsim; ``change`` replaces entries of the envelope."""
    made = msgpack.packb(ENVELOPE | change) if head is None else head
    for item in data:
        header = msgpack.packb(item)[: -len(item) or None]
        made += padding * (-(len(made) + len(header)) % 16) + header + item
    return bytes(made)


def fields(**change: Any) -> bytes:
    return frame(fields=FIELDS | change)


def arrays(number: int, *description: object) -> bytes:
    changed = list(ARRAYS)
    changed[number] = list(description)
    return frame(arrays=changed)


def without(mapping: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in mapping.items() if key != name}


def nested(opening: bytes, depth: int) -> bytes:
    return opening * depth + b"\xc0"


def raw_fields(value: bytes) -> bytes:
    head = b"\x88" + b"".join(
        msgpack.packb(k) + msgpack.packb(v) for k, v in ENVELOPE.items() if k != "fields"
    )
    return frame(head + b"\xa6fields" + value)


def test_the_frame_that_the_others_distort_is_valid_and_in_any_order_of_keys() -> None:
    for head in (frame(), frame(msgpack.packb(dict(reversed(ENVELOPE.items()))))):
        envelope, received = decode(head, KINDS)
        assert envelope == ("test", 5, SERVER, 2, "train")
        assert isinstance(received, Every)
        assert received.yes is True
        assert (received.whole, received.real, received.word, received.maybe) == (-3, 0.5, "w", None)
        assert received.grid.tolist() == [[0, 0], [0, 0]]
        assert received.tree["a"].tolist() == [True, False, True]
        assert received.nested["x"]["b"].tolist() == 0
        assert received.grid.dtype.str == "<f4"
    # The same message as fedsim itself would send it
    again = pack(received).frame(sender=5, receiver=SERVER, round=2, exchange="train")
    assert decode(again, KINDS)[0] == envelope


def test_arrays_may_be_in_any_bin_form() -> None:
    head = msgpack.packb(ENVELOPE)
    for item in DATA:
        header = b"\xc6" + len(item).to_bytes(4, "big")
        head += b"\xc0" * (-(len(head) + 5) % 16) + header + item
    assert decode(head, KINDS)[0].kind == "test"


HEAD = msgpack.packb(ENVELOPE)
MUCH_PADDING = HEAD + b"\xc0" * (16 + -(len(HEAD) + 2) % 16) + b"\xc4\x10" + bytes(16)

HOSTILE: dict[str, tuple[bytes, str]] = {
    # not an envelope
    "empty": (b"", "envelope: the bytes end within it, after 0"),
    "no map": (b"\x01", "envelope: 1 is not a map"),
    "nil": (b"\xc0" * 40, "envelope: None is not a map"),
    "never used byte": (b"\xc1", "envelope: not msgpack"),
    "pickle": (b"\x80\x04\x95\x10\x00", "envelope: '.*' is missing"),
    "truncated envelope": (frame()[:100], "envelope: the bytes end within it, after 100"),
    "endless envelope": (
        raw_fields(msgpack.packb({f"{i:0100}": None for i in range(4000)})),
        "envelope: longer than 262144 bytes",
    ),
    "ext": (frame(exchange=msgpack.ExtType(5, b"")), "envelope: an extension of type 5"),
    "ext of 1 byte": (frame(exchange=msgpack.ExtType(5, b"x")), "envelope: 2 exceeds max_ext_len"),
    "timestamp": (frame(exchange=msgpack.Timestamp(1)), "envelope: .*ext"),
    "bytes": (frame(exchange=b"train"), "envelope: 5 exceeds max_bin_len"),
    "bad UTF-8": (raw_fields(b"\xa1\xff"), "envelope: 'utf-8' codec"),
    "number as key": (raw_fields(b"\x81\x01\x01"), "envelope: int is not allowed for map key"),
    "empty bytes as key": (
        raw_fields(b"\x81\xc4\x00\x01"),
        "fields of 'test': 'grid' is missing and a value",
    ),
    "key twice": (b"\x82" + b"\xa4kind\xa1a" * 2, "envelope: the key 'kind' occurs twice in one map"),
    "field twice": (raw_fields(b"\x82" + b"\xa4real\x01" * 2), "the key 'real' occurs twice"),
    "missing key": (frame(msgpack.packb(without(ENVELOPE, "round"))), "envelope: 'round' is missing"),
    "unknown key": (frame(at=1), "envelope: 'at' is unknown"),
    "wrong key": (
        frame(msgpack.packb(without(ENVELOPE, "round") | {"r": 1})),
        "'round' is missing and 'r' is",
    ),
    # what the envelope says
    "version 2": (frame(fedsim=2), "envelope.fedsim: version 2, this is version 1"),
    "version true": (frame(fedsim=True), "envelope.fedsim: version True"),
    "unknown kind": (frame(kind="shell"), "envelope.kind: 'shell' is none of the kinds model, update"),
    "kind is a list": (frame(kind=["test"]), "envelope.kind: a value of type tuple"),
    "sender -2": (frame(sender=-2), "envelope.sender: -2 is not an integer from -1"),
    "sender true": (frame(sender=True), "envelope.sender: True"),
    "receiver 2**31": (frame(receiver=2**31), "envelope.receiver: 2147483648"),
    "receiver float": (frame(receiver=1.0), "envelope.receiver: 1.0"),
    "round -2": (frame(round=-2), "envelope.round: -2"),
    "round nil": (frame(round=None), "envelope.round: None"),
    "exchange nil": (frame(exchange=None), "envelope.exchange: None"),
    "exchange long": (frame(exchange="e" * 257), "envelope.exchange: 'eeee.*\\.\\.\\. has not at most 256"),
    "string long": (fields(word="w" * 4097), "envelope: 4097 exceeds max_str_len"),
    "list long": (fields(word=[0] * 4097), "envelope: 4097 exceeds max_array_len"),
    "map long": (fields(tree={str(i): i for i in range(4097)}), "envelope: 4097 exceeds max_map_len"),
    # fields
    "fields nil": (frame(fields=None), "envelope.fields: None is not a map"),
    "missing field": (frame(fields=without(FIELDS, "maybe")), "fields of 'test': 'maybe' is missing"),
    "extra field": (fields(more=1), "fields of 'test': 'more' is unknown"),
    "bool is 1": (fields(yes=1), "fields.yes: 1 is not a bool"),
    "int is bool": (fields(whole=False), "fields.whole: False is not a signed 64-bit integer"),
    "int is float": (fields(whole=1.0), "fields.whole: 1.0 is not"),
    "int is unsigned": (fields(whole=2**63), "fields.whole: 9223372036854775808 is not"),
    "float is int": (fields(real=1), "fields.real: 1 is not a float"),
    "float is string": (fields(real="1"), "fields.real: '1' is not a float"),
    "string is nil": (fields(word=None), "fields.word: None is not a str"),
    "optional is string": (fields(maybe=""), "fields.maybe: '' is not a signed"),
    "tree is list": (fields(tree=[1]), "fields.tree: a value of type tuple is not a map"),
    "tree in tree": (
        fields(tree={"a": {"b": 1}}),
        r"fields.tree\['a'\]: a value of type dict where array 1 of 3",
    ),
    "tree too flat": (fields(nested={"x": 2}), r"fields.nested\['x'\]: 2 is not a map"),
    "name long": (fields(tree={"n" * 257: 1}), "fields.tree: 'nnn.* is not a name of at most 256"),
    "deep lists": (raw_fields(nested(b"\x91", 900)), "envelope.fields: a value of type tuple is not a map"),
    "deep maps": (raw_fields(nested(b"\x81\xa1a", 900)), "fields of 'test': 'grid' is missing and 'a' is"),
    "deeper lists": (raw_fields(nested(b"\x91", 200_000)), "envelope: nested too deeply"),
    "deeper maps": (raw_fields(nested(b"\x81\xa1a", 60_000)), "envelope: nested too deeply"),
    # numbers of arrays
    "array twice": (fields(tree={"a": 0}), r"fields.tree\['a'\]: 0 where array 1 of 3 comes next"),
    "array skipped": (fields(grid=1), "fields.grid: 1 where array 0 of 3 comes next"),
    "array unknown": (fields(grid=3), "fields.grid: 3 where array 0 of 3 comes next"),
    "array negative": (fields(grid=-1), "fields.grid: -1 where array 0 of 3 comes next"),
    "array is bool": (fields(grid=False), "fields.grid: False where array"),
    "array is nil": (fields(grid=None), "fields.grid: None where array"),
    "array unused": (fields(nested={}), r"arrays\[2\]: no field uses it"),
    # descriptions of arrays
    "arrays nil": (frame(arrays=None), "envelope.arrays: None is not a list"),
    "arrays map": (frame(arrays={}), "envelope.arrays: a value of type dict is not a list"),
    "array described by nil": (frame(arrays=[None]), r"arrays\[0\]: None is not \[dtype, shape, length\]"),
    "array described by two": (
        arrays(0, "<f4", [2, 2]),
        r"arrays\[0\]: a value of type tuple is not \[dtype",
    ),
    "big-endian": (arrays(0, ">f4", [2, 2], 16), r"arrays\[0\]: the dtype '>f4' is none of"),
    "object": (arrays(0, "|O", [2], 16), r"arrays\[0\]: the dtype '\|O' is none of"),
    "string dtype": (arrays(0, "<U4", [1], 16), r"arrays\[0\]: the dtype '<U4' is none of"),
    "dtype list": (
        arrays(0, [["a", "<f4"]], [4], 16),
        r"arrays\[0\]: the dtype a value of type tuple is none",
    ),
    "shape nil": (arrays(0, "<f4", None, 16), r"arrays\[0\]: the shape, None, is no list"),
    "shape deep": (arrays(0, "<f4", [1] * 17, 4), r"arrays\[0\]: the shape, .* is no list of at most 16"),
    "negative": (arrays(0, "<f4", [-2, -2], 16), r"arrays\[0\]: -2 is no size of a dimension"),
    "size bool": (arrays(0, "<f4", [True, 4], 16), r"arrays\[0\]: True is no size"),
    "size huge": (arrays(0, "<f4", [2**62, 0], 0), r"arrays\[0\]: 4611686018427387904 is no size"),
    "sizes huge": (arrays(0, "<f4", [2**31] * 15 + [0], 0), r"arrays\[0\]: the shape .* is absurd"),
    "product wraps to 16": (
        arrays(0, "<f4", [2**31, 2**31, 4], 16),
        r"arrays\[0\]: 16 bytes for <f4 of shape",
    ),
    "shape lies": (arrays(0, "<f4", [2, 3], 16), r"arrays\[0\]: 16 bytes for <f4 of shape \[2, 3\]"),
    "length lies": (arrays(0, "<f4", [2, 2], 2**31), r"arrays\[0\]: 2147483648 bytes for <f4"),
    "length bool": (arrays(0, "|i1", [1], True), r"arrays\[0\]: True bytes for"),
    "shape and length lie": (
        arrays(0, "<f4", [4, 2], 32),
        r"arrays\[0\]: a bin of 16 bytes, the envelope says 32",
    ),
    "huge array": (
        arrays(0, "<f8", [2**28], 2**31),
        r"arrays\[0\]: a bin of 16 bytes, the envelope says 2147483648",
    ),
    # the arrays themselves
    "no arrays": (frame(data=[]), r"arrays\[0\]: the frame ends at byte \d+, before the array starts"),
    "array missing": (frame(data=DATA[:2]), r"arrays\[2\]: the frame ends at byte"),
    "array more": (frame(data=[*DATA, b"x"]), r"frame: \d+ bytes are left over at byte"),
    "byte more": (frame() + b"\xc0", "frame: 1 bytes are left over at byte"),
    "byte less": (frame()[:-1], r"arrays\[2\]: 8 bytes from byte \d+, the frame ends at"),
    "header cut": (frame(data=[])[:] + b"\xc6\x00", r"arrays\[0\]: the frame ends at byte"),
    "zeros as padding": (frame(padding=b"\0"), r"arrays\[0\]: byte \d+ is neither nil"),
    "much padding": (MUCH_PADDING, r"arrays\[0\]: byte \d+ is neither nil"),
    "string for bin": (frame(data=[]) + b"\xb0" + bytes(16), r"arrays\[0\]: byte \d+ is neither nil"),
    "bool of 2": (frame(data=[DATA[0], b"\1\2\1", DATA[2]]), r"arrays\[1\]: a bool is neither 0 nor 1"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_frame_is_one_decode_error(name: str) -> None:
    hostile, problem = HOSTILE[name]
    with pytest.raises(DecodeError, match=problem) as caught:
        decode(hostile, KINDS)
    assert len(str(caught.value)) < 600
    assert str(caught.value).isprintable()


def test_an_array_off_its_place_is_refused() -> None:
    head = msgpack.packb(ENVELOPE)
    header = b"\xc4\x10"
    padding = (-(len(head) + 2) - 1) % 16
    with pytest.raises(DecodeError, match=r"arrays\[0\]: starts at byte \d+, not a multiple of 16"):
        decode(head + b"\xc0" * padding + header + bytes(16), KINDS)


def test_a_value_that_the_class_refuses_is_a_decode_error() -> None:
    update = {"architecture": "m", "params": {}, "buffers": {}, "num_samples": -1}
    with pytest.raises(DecodeError, match="fields of 'update': num_samples is -1"):
        decode(frame(kind="update", fields=update, arrays=[], data=[]), KINDS)
    batch = {"indices": 0}
    with pytest.raises(DecodeError, match=r"fields\.indices: an array of int32, not of int64"):
        decode(frame(kind="public_batch", fields=batch, arrays=[["<i4", [2], 8]], data=[bytes(8)]), KINDS)
    logits = {"values": 0, "form": "odds", "temperature": 1.0, "indices_digest": 1, "indices": None}
    with pytest.raises(DecodeError, match=r"fields\.form: 'odds' is none of 'logits', 'probs'"):
        decode(frame(kind="logits_up", fields=logits, arrays=[["<f4", [2, 1], 8]], data=[bytes(8)]), KINDS)


def test_non_finite_numbers_pass() -> None:
    received = decode(fields(real=float("nan")), KINDS)[1]
    assert isinstance(received, Every)
    assert received.real != received.real
    infinite = np.full((2, 2), np.inf, "<f4").tobytes()
    received = decode(frame(data=[infinite, *DATA[1:]]), KINDS)[1]
    assert isinstance(received, Every)
    assert np.isinf(received.grid).all()


def test_limits_can_be_narrowed() -> None:
    for limits, problem in (
        (Limits(frame_bytes=100), r"frame: \d+ bytes, the limit is 100"),
        (Limits(envelope_bytes=100), "envelope: longer than 100 bytes"),
        (Limits(arrays=2), "envelope: "),
        (Limits(dimensions=1), r"arrays\[0\]: the shape"),
        (Limits(string_bytes=3), "envelope: .* exceeds max_str_len"),
        (Limits(name_characters=4), r"envelope\.exchange: 'train' has not at most 4"),
    ):
        with pytest.raises(DecodeError, match=problem):
            decode(frame(), KINDS, limits)


def test_no_kinds_know_nothing() -> None:
    with pytest.raises(DecodeError, match=r"none of the kinds \(none\)"):
        decode(frame(), Kinds([]))


def test_a_hostile_envelope_takes_little_memory() -> None:
    bombs = [
        raw_fields(b"\xdd\x00\x00\x10\x00" + b"\xdc\x00\x40" * 4096),
        raw_fields(b"\xdd\xff\xff\xff\xff"),
        raw_fields(b"\xdf\xff\xff\xff\xff"),
        raw_fields(b"\xdb\xff\xff\xff\xff"),
        raw_fields(b"\xdc\x10\x00" + (b"\xdc\x00\x3f" + b"\x80" * 63) * 4096),
        arrays(0, "<f8", [2**28], 2**31),
        msgpack.packb(ENVELOPE) + b"\xc0" * 10 + b"\xc6\x7f\xff\xff\xff",
    ]
    tracemalloc.start()
    try:
        for bomb in bombs:
            with pytest.raises(DecodeError):
                decode(bomb, KINDS)
        assert tracemalloc.get_traced_memory()[1] < 1_500_000
    finally:
        tracemalloc.stop()
