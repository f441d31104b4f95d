"""Laws of frames: whatever is packed comes back, and damage gives a valid message or a DecodeError."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from fedsim.errors import DecodeError
from fedsim.params import Array, Form, Model, PendingTree, Tree
from fedsim.wire import (
    COMMON,
    SERVER,
    Envelope,
    Frame,
    Kinds,
    Message,
    ModelUpdate,
    counted,
    decode,
    message,
    num_parameters,
    pack,
    same,
)


@message("any")
class Anything(Message):
    yes: bool
    whole: int
    real: float | None
    word: str
    grid: Array | None
    tree: Tree = counted()
    nested: Mapping[str, Tree] = counted()


KINDS = Kinds([*COMMON, Anything])

TYPES = "?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"
DTYPES = st.tuples(st.sampled_from("<>"), st.sampled_from(TYPES)).map(lambda pair: np.dtype("".join(pair)))
SHAPES = npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)


@st.composite
def arrays(draw: st.DrawFn) -> Array:
    """Arrays of any dtype that travels, in any layout that NumPy has."""
    array: Array = draw(npst.arrays(draw(DTYPES), draw(SHAPES)))
    layout = draw(st.sampled_from(["plain", "fortran", "transposed", "reversed", "read-only", "broadcast"]))
    if layout == "fortran":
        return np.asfortranarray(array) if array.ndim else array
    if layout == "transposed":
        return array.T
    if layout == "reversed":
        return array[(slice(None, None, -1),) * array.ndim]
    if layout == "broadcast":
        return np.broadcast_to(array, (2, *array.shape))
    array.flags.writeable = layout == "plain"
    return array


NAMES = st.text(st.characters(codec="utf-8"), max_size=8)
TREES = st.dictionaries(NAMES, arrays(), max_size=4)
MESSAGES = st.builds(
    Anything,
    yes=st.booleans(),
    whole=st.integers(-(2**63), 2**63 - 1),
    real=st.none() | st.floats() | st.integers(-9, 9),
    word=st.text(st.characters(codec="utf-8"), max_size=300),
    grid=st.none() | arrays(),
    tree=TREES,
    nested=st.dictionaries(NAMES, TREES, max_size=3),
)
ADDRESSES = st.integers(SERVER, 2**31 - 1)


def frame(sent: Message) -> Frame:
    return pack(sent).frame(sender=4, receiver=SERVER, round=1, exchange="train")


def flatten(tree: Mapping[str, Tree]) -> list[Array]:
    return [array for inner in tree.values() for array in inner.values()]


@settings(max_examples=settings().max_examples * 10 // 3)
@given(MESSAGES, ADDRESSES, ADDRESSES, ADDRESSES, NAMES)
def test_what_is_packed_comes_back(
    sent: Anything, sender: int, receiver: int, round_: int, exchange: str
) -> None:
    made = pack(sent).frame(sender=sender, receiver=receiver, round=round_, exchange=exchange)
    joined = made.join()
    assert len(joined) == len(made)
    for source in (made, joined):
        envelope, received = decode(source, KINDS)
        assert envelope == Envelope("any", sender, receiver, round_, exchange)
        assert isinstance(received, Anything)
        assert same(received, sent)
        assert num_parameters(received) == num_parameters(sent)
        # Independently of same(): values, shapes and names, in order.
        assert (received.yes, received.whole, received.word) == (sent.yes, sent.whole, sent.word)
        assert repr(received.real) == repr(None if sent.real is None else float(sent.real))
        assert list(received.tree) == list(sent.tree)
        assert list(received.nested) == list(sent.nested)
        assert (received.grid is None) == (sent.grid is None)
        got = [*received.tree.values(), *flatten(received.nested)]
        for array, original in zip(got, [*sent.tree.values(), *flatten(sent.nested)], strict=True):
            np.testing.assert_array_equal(array, original, strict=False)
            assert array.shape == original.shape
            assert array.dtype == original.dtype.newbyteorder("<")
            assert array.flags.c_contiguous
            assert not array.flags.writeable
        # Bytes are a function of the message alone.
        again = pack(received).frame(sender=sender, receiver=receiver, round=round_, exchange=exchange)
        assert again.join() == joined


@given(MESSAGES)
def test_a_receiver_in_memory_gets_what_decoding_gives(sent: Anything) -> None:
    packed = pack(sent)
    received, (_, decoded) = packed.received, decode(frame(sent), KINDS)
    assert same(received, decoded)
    assert isinstance(received, Anything)
    got = [*received.tree.values(), *flatten(received.nested)]
    assert not any(array.flags.writeable for array in got)
    assert packed.received is received


@given(MESSAGES)
def test_bytes_are_made_on_demand_and_their_number_is_known_before(sent: Anything) -> None:
    looked_at: list[str] = []

    def later(name: str, tree: Tree) -> PendingTree:
        def compute() -> Tree:
            looked_at.append(name)
            return tree

        tree = {key: array.astype(array.dtype.newbyteorder("<")) for key, array in tree.items()}
        return PendingTree(Form.of(tree), compute)

    nested = {name: later(name, tree) for name, tree in sent.nested.items()}
    waiting = replace(sent, tree=later("tree", sent.tree), nested=nested)
    packed, eager = pack(waiting), frame(sent)
    made = packed.frame(sender=4, receiver=SERVER, round=1, exchange="train")
    received = packed.received
    assert len(made) == len(eager)
    assert packed.num_parameters == num_parameters(sent)
    assert not looked_at
    assert made.join() == eager.join()
    assert same(received, sent)


VICTIMS = [
    frame(
        Anything(
            True,
            -(2**40),
            0.5,
            "word",
            np.array([True, False]),
            {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.zeros(0)},
            {"x": {"y": np.array(3)}, "z": {}},
        )
    ).join(),
    frame(ModelUpdate.of(Model("mlp", {"w": np.ones((3, 4), np.float16)}, {}), 10)).join(),
]


def survives(damaged: bytes) -> bool:
    """Say whether damaged bytes are still a valid frame: they are, or a DecodeError says why not."""
    try:
        envelope, received = decode(damaged, KINDS)
    except DecodeError:
        return False
    # What passed is a whole valid message: it can be sent on, and arrives the same.
    made = pack(received).frame(
        sender=envelope.sender, receiver=envelope.receiver, round=envelope.round, exchange=envelope.exchange
    )
    arrived, again = decode(made.join(), KINDS)
    assert arrived == envelope
    assert same(again, received)
    return True


@pytest.mark.parametrize("victim", VICTIMS)
def test_no_truncation_survives(victim: bytes) -> None:
    assert survives(victim)
    assert not any(survives(victim[:length]) for length in range(len(victim)))


@pytest.mark.parametrize("victim", VICTIMS)
def test_every_flip_of_one_bit_is_harmless(victim: bytes) -> None:
    for position in range(len(victim)):
        for bit in range(8):
            damaged = bytearray(victim)
            damaged[position] ^= 1 << bit
            survives(bytes(damaged))


EDITS = st.lists(
    st.tuples(
        st.sampled_from(["flip", "insert", "delete", "repeat", "markers"]),
        st.integers(0, 500),
        st.binary(min_size=1, max_size=5),
    ),
    min_size=1,
    max_size=6,
)
MARKERS = bytes(
    [0x80, 0x90, 0xA0, 0xC0, 0xC1, 0xC4, 0xC6, 0xC7, 0xCA, 0xCF, 0xD3, 0xD4, 0xDB, 0xDD, 0xDF, 0xFF]
)


@settings(max_examples=settings().max_examples * 5)
@given(st.sampled_from(VICTIMS), EDITS)
@example(VICTIMS[0], [("insert", 0, b"\xc0")])
def test_any_damage_is_refused_or_harmless(victim: bytes, edits: list[tuple[str, int, bytes]]) -> None:
    damaged = victim
    for edit, where, what in edits:
        at = where % (len(damaged) + 1)
        before, after = damaged[:at], damaged[at:]
        if edit == "flip":
            changed = bytes(byte ^ other for byte, other in zip(after, what, strict=False))
            damaged = before + changed + after[len(changed) :]
        elif edit == "insert":
            damaged = before + what + after
        elif edit == "delete":
            damaged = before + after[len(what) :]
        elif edit == "repeat":
            damaged = before + after[: 7 * len(what)] + after
        else:
            damaged = before + bytes(MARKERS[byte % len(MARKERS)] for byte in what) + after[len(what) :]
    survives(damaged)


@settings(max_examples=settings().max_examples * 5)
@given(st.binary(max_size=200))
def test_random_bytes_are_no_frame(noise: bytes) -> None:
    assert not survives(noise)


@message("few")
class Few(Message):
    params: Tree
    buffers: Tree | None
    real: float


@pytest.mark.parametrize(
    ("first", "second"),
    [((None, 1.0), ({}, 1.0)), ((None, 0.0), (None, -0.0)), ((None, math.nan), (None, -math.nan))],
)
def test_envelopes_are_shared_by_equal_bytes_alone(
    first: tuple[Any, float], second: tuple[Any, float]
) -> None:
    tree = {"w": np.ones(2, np.float32)}

    def pending() -> PendingTree:
        return PendingTree(Form.of(tree), lambda: tree)

    for buffers, real in (first, second, first):
        eager, late = Few(tree, buffers, real), Few(pending(), buffers, real)
        assert frame(late).join() == frame(eager).join()


def test_a_wrong_field_beside_a_pending_tree_is_told_as_such() -> None:
    tree = {"w": np.ones(2, np.complex64)}
    with pytest.raises(TypeError, match="an array of dtype complex64 cannot travel"):
        pack(Few(PendingTree(Form.of(tree), lambda: tree), None, 1.0))
    wrong: Any = [1.0]
    with pytest.raises(TypeError, match=r"real: a value of type list is not a float"):
        pack(Few(PendingTree(Form.of({}), dict), None, wrong))
