"""Packing: the form of a frame, its alignment, what is shared, what is refused."""

import tracemalloc
from typing import Any

import msgpack
import numpy as np
import pytest

from fedsim.params import Array, Model, Tree
from fedsim.wire import (
    COMMON,
    SERVER,
    Frame,
    FrameSize,
    Kinds,
    Message,
    ModelBroadcast,
    PublicBatch,
    SizedPacked,
    counted,
    decode,
    message,
    pack,
    same,
)


@message("scalars")
class Scalars(Message):
    yes: bool
    whole: int
    real: float
    word: str
    nothing: int | None = None


@message("one")
class One(Message):
    value: Array = counted()


@message("trees")
class Trees(Message):
    tree: Tree


SCALARS = Scalars(True, 3, 0.5, "word")
KINDS = Kinds([*COMMON, Scalars, One, Trees])


def frame(sent: Message, receiver: int = 3, round_: int = 1, exchange: str = "train") -> Frame:
    return pack(sent).frame(sender=SERVER, receiver=receiver, round=round_, exchange=exchange)


def fedavg_cnn() -> Model:
    """Return the two-layer CNN of FedAvg: 1,663,370 parameters in eight arrays."""
    shapes = {
        "conv1.weight": (32, 1, 5, 5),
        "conv1.bias": (32,),
        "conv2.weight": (64, 32, 5, 5),
        "conv2.bias": (64,),
        "fc.weight": (512, 3136),
        "fc.bias": (512,),
        "head.weight": (10, 512),
        "head.bias": (10,),
    }
    return Model("cnn", {name: np.ones(shape, np.float32) for name, shape in shapes.items()})


def test_any_msgpack_library_reads_a_frame() -> None:
    model = Model("mlp", {"w": np.arange(12, dtype=">f4").reshape(3, 4), "b": np.array(-1, np.int8)})
    unpacker = msgpack.Unpacker()
    unpacker.feed(frame(ModelBroadcast.of(model)).join())
    envelope, *rest = list(unpacker)
    assert envelope == {
        "fedsim": 1,
        "kind": "model",
        "sender": -1,
        "receiver": 3,
        "round": 1,
        "exchange": "train",
        "fields": {"architecture": "mlp", "params": {"w": 0, "b": 1}, "buffers": {}},
        "arrays": [["<f4", [3, 4], 48], ["|i1", [], 1]],
    }
    arrays = [item for item in rest if item is not None]
    assert arrays == [np.arange(12, dtype="<f4").tobytes(), b"\xff"]


def test_a_message_without_arrays_is_its_envelope() -> None:
    made = frame(SCALARS)
    assert len(made.parts) == 1
    assert msgpack.unpackb(made.join())["fields"] == {
        "yes": True,
        "whole": 3,
        "real": 0.5,
        "word": "word",
        "nothing": None,
    }


@pytest.mark.parametrize("length", range(18))
def test_arrays_start_at_multiples_of_16(length: int) -> None:
    tree = {"a": np.zeros(length, np.int8), "b": np.zeros(300 + length, np.uint8), "c": np.zeros(70000, bool)}
    made = frame(Trees(tree), exchange="e" * length)
    position = 0
    for number, part in enumerate(made.parts):
        assert number % 2 == 0 or position % 16 == 0
        position += len(part)
    assert position == len(made) == len(made.join())
    for start in (made, made.join()):
        received = decode(start, KINDS)[1]
        assert isinstance(received, Trees)
        assert same(received, Trees(tree))


def test_the_frame_of_the_fedavg_cnn_is_hardly_longer_than_its_arrays() -> None:
    model = fedavg_cnn()
    num_bytes = sum(array.nbytes for array in model.params.values())
    assert num_bytes == 6_653_480
    assert len(frame(ModelBroadcast.of(model))) <= num_bytes * 1.0005


def test_frames_of_one_message_share_their_arrays_and_their_length() -> None:
    model = fedavg_cnn()
    packed = pack(ModelBroadcast.of(model))
    frames = [
        packed.frame(sender=SERVER, receiver=client, round=round_, exchange="train")
        for client, round_ in ((0, 0), (127, 128), (128, 65_536), (70_000, 1), (2**31 - 1, 2**31 - 1))
    ]
    for made in frames:
        assert len(made) == len(frames[0])
        assert all(part is first for part, first in zip(made.parts[1:], frames[0].parts[1:], strict=True))
    for part, array in zip(frames[0].parts[1::2], model.params.values(), strict=True):
        assert np.shares_memory(np.frombuffer(part, np.uint8), array)
        assert isinstance(part, memoryview)
        assert part.readonly


def test_one_packed_message_serves_several_exchanges() -> None:
    packed = pack(SCALARS)
    for exchange in ("share", "distil", "", "share", "ü" * 256):
        made = packed.frame(sender=0, receiver=SERVER, round=-1, exchange=exchange)
        assert decode(made, KINDS)[0] == ("scalars", 0, SERVER, -1, exchange)


def test_nothing_is_copied_before_the_join_and_one_copy_is_made_by_it() -> None:
    sent = ModelBroadcast.of(fedavg_cnn())
    tracemalloc.start()
    try:
        made = frame(sent)
        decode(made, KINDS)
        assert tracemalloc.get_traced_memory()[1] < 400_000  # msgpack's own buffers
        joined = made.join()
        assert tracemalloc.get_traced_memory()[1] < len(joined) + 400_000
        tracemalloc.reset_peak()
        decode(joined, KINDS)
        assert tracemalloc.get_traced_memory()[1] < len(joined) + 400_000
    finally:
        tracemalloc.stop()


def test_received_arrays_are_read_only_views() -> None:
    array = np.arange(5.0)
    made = frame(One(array))
    for source in (made, made.join(), bytearray(made.join()), memoryview(made.join())):
        received = decode(source, KINDS)[1]
        assert isinstance(received, One)
        assert not received.value.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            received.value[0] = 1
        owner = array if isinstance(source, Frame) else np.frombuffer(source, np.uint8)
        assert np.shares_memory(received.value, owner)


@pytest.mark.parametrize(
    "array",
    [
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(20, dtype=">i2")[::-3],
        np.broadcast_to(np.float32(2), (3, 2)),
        np.arange(6, dtype=np.longlong).reshape(2, 3).T,
        np.zeros((0, 3)),
        np.array(7, ">u8"),
        np.array([0.0, -0.0, np.inf, np.nan], np.float16),
        np.array([True, False]),
    ],
)
def test_any_layout_travels_as_contiguous_little_endian(array: Array) -> None:
    before = array.copy(order="K")
    received = decode(frame(One(array)).join(), KINDS)[1]
    assert isinstance(received, One)
    assert received.value.shape == array.shape
    assert received.value.dtype == array.dtype.newbyteorder("<")
    assert received.value.tobytes() == array.astype(array.dtype.newbyteorder("<")).tobytes()
    assert np.array_equal(array, before, equal_nan=array.dtype.kind == "f")


def test_a_memory_mapped_array_travels(tmp_path: Any) -> None:
    mapped = np.memmap(tmp_path / "array", np.int32, "w+", shape=(4,))
    mapped[:] = [1, 2, 3, 4]
    assert same(One(mapped), One(np.array([1, 2, 3, 4], np.int32)))


@pytest.mark.parametrize(
    ("sent", "problem"),
    [
        (Scalars(1, 3, 0.5, ""), "yes: 1 is not a bool: write bool"),  # type: ignore[arg-type]
        (Scalars(True, True, 0.5, ""), "whole: True is not a signed 64-bit integer"),
        (
            Scalars(True, np.int64(3), 0.5, ""),  # type: ignore[arg-type]
            "whole: a value of type int64 is not a signed 64-bit integer: write int",
        ),
        (Scalars(True, 3, "0.5", ""), "real: '0.5' is not a float"),  # type: ignore[arg-type]
        (Scalars(True, 3, np.float32(1), ""), "real: a value of type float32 is not"),  # type: ignore[arg-type]
        (Scalars(True, 3, 0.5, b"x"), "word: a value of type bytes is not a str"),  # type: ignore[arg-type]
        (Scalars(True, 3, 0.5, None), "word: None is not a str"),  # type: ignore[arg-type]
        (One([1.0]), "value: a list is not an array"),  # type: ignore[arg-type]
        (One(None), "value: a NoneType is not an array"),  # type: ignore[arg-type]
        (One(np.ma.masked_array([1.0], [True])), "value: a MaskedArray is not an array"),
        (One(np.zeros(2, complex)), "value: an array of dtype complex128 cannot travel: cast it"),
        (One(np.array([None])), "value: an array of dtype object cannot travel"),
        (One(np.array(["a"])), "value: an array of dtype <U1 cannot travel"),
        (One(np.zeros(2, "M8[s]")), "value: an array of dtype datetime64"),
        (One(np.zeros(2, "i4,f4")), "value: an array of dtype .* cannot travel"),
        (PublicBatch(np.zeros(2, np.int32)), "indices: an array of int32, the declaration says int64"),
        (Trees([]), "tree: a value of type list is not a mapping"),  # type: ignore[arg-type]
        (Trees({1: np.zeros(1)}), "tree: the name 1 is not a str"),  # type: ignore[dict-item]
        (Trees({"a": {"b": np.zeros(1)}}), r"tree\['a'\]: a dict is not an array"),  # type: ignore[dict-item]
    ],
)
def test_a_value_of_another_type_is_refused(sent: Message, problem: str) -> None:
    with pytest.raises(TypeError, match=problem):
        pack(sent)


@pytest.mark.parametrize(
    ("sent", "problem"),
    [
        (Scalars(True, 2**63, 0.5, ""), "whole: an integer beyond 64 bits"),
        (Scalars(True, -(2**63) - 1, 0.5, ""), "whole: an integer beyond 64 bits"),
        (Scalars(True, 3, 10**400, ""), "real: an integer too large for a float"),
        (Scalars(True, 3, 0.5, "ü" * 2049), "word: 4098 bytes of text"),
        (Scalars(True, 3, 0.5, "\ud800"), "surrogates not allowed"),
        (One(np.zeros((1,) * 17)), "value: 17 dimensions"),
        (Trees({"n" * 257: np.zeros(1)}), "tree: a name of 257 characters"),
        (Trees({str(i): np.zeros(1) for i in range(4097)}), "tree: 4097 names"),
        (Trees({f"{i:0200}": np.zeros(1) for i in range(1300)}), "whose names and scalars take .* bytes"),
        (
            One(np.broadcast_to(np.int8(0), 2**31)),
            "value: 2147483648 bytes, a frame holds at most 2147483648",
        ),
    ],
)
def test_more_than_a_frame_can_hold_is_refused(sent: Message, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        pack(sent)


def test_arrays_that_are_too_large_together_are_refused() -> None:
    half = np.zeros(2**30, np.int8)  # never touched, so it takes no memory
    with pytest.raises(ValueError, match="'trees' of 2147483664 bytes: a frame holds at most 2147483648"):
        pack(Trees({"a": half, "b": half}))


def test_too_many_arrays_in_several_trees_are_refused() -> None:
    many = {str(i): np.zeros(0) for i in range(2100)}
    with pytest.raises(ValueError, match="'model' of 4200 arrays: a frame holds at most 4096"):
        pack(ModelBroadcast("m", many, many))


@pytest.mark.parametrize(
    "change",
    [{"sender": -2}, {"receiver": -2}, {"round": -2}, {"sender": 2**31}, {"receiver": 1.0}, {"round": None}],
)
def test_odd_routes_are_refused(change: dict[str, Any]) -> None:
    route: dict[str, Any] = {"sender": 0, "receiver": SERVER, "round": 0, "exchange": ""} | change
    with pytest.raises(ValueError, match="addresses are -1 for the server"):
        pack(SCALARS).frame(**route)


@pytest.mark.parametrize("exchange", [None, "e" * 257, b"train"])
def test_odd_exchanges_are_refused(exchange: Any) -> None:
    with pytest.raises(ValueError, match="is no name of at most 256"):
        pack(SCALARS).frame(sender=0, receiver=SERVER, round=0, exchange=exchange)


def test_same_compares_bits() -> None:
    nan = np.array([np.nan, 0.0])
    assert same(One(nan), One(nan.astype(">f8")))
    assert not same(One(nan), One(-nan))
    assert not same(One(nan), One(nan.astype(np.float32)))
    assert not same(One(nan), One(nan.reshape(2, 1)))
    assert not same(One(np.zeros(2)), One(-np.zeros(2)))
    assert same(Trees({"a": nan, "b": nan}), Trees({"a": nan, "b": nan}))
    assert not same(Trees({"a": nan, "b": nan}), Trees({"b": nan, "a": nan}))
    assert not same(SCALARS, Scalars(True, 4, 0.5, "word"))
    assert not same(SCALARS, One(nan))
    assert same(Scalars(True, 3, float("nan"), ""), Scalars(True, 3, float("nan"), ""))
    assert same(Scalars(True, 3, 1, ""), Scalars(True, 3, 1.0, ""))


def test_of_a_sized_message_only_the_size_is_known() -> None:
    size = FrameSize("model", 100, 7, False, 250)
    packed = SizedPacked(size, ModelBroadcast.PLAN)
    assert pack(packed.message) is packed
    assert (packed.kind, packed.num_parameters, packed.is_data) == ("model", 7, False)
    assert packed.plain_bytes("train") == 250
    assert len(packed.frame(sender=-1, receiver=3, round=1, exchange="train")) == 100
    assert packed.received is packed.message
    assert packed.plan is ModelBroadcast.PLAN
    whole = ModelBroadcast("mlp", {}, {})
    assert SizedPacked(size, ModelBroadcast.PLAN, whole).received is whole
