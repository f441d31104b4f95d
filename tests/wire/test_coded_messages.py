"""Coded messages: what they stand for, their length, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.errors import DecodeError
from fedsim.params import Form, Model, PendingTree, Tree, form_of, freeze
from fedsim.rng import Key
from fedsim.wire import (
    COMMON,
    SERVER,
    Kinds,
    LogitsUp,
    Message,
    ModelUpdate,
    counted,
    decode,
    indices_digest,
    message,
    pack,
    same,
)
from fedsim.wire.codecs.choices import CodecConfig
from fedsim.wire.coded_messages import MessageCodec, coded_kind, held_by, stands_for, trees_in
from tests.wire.codecs.conftest import drawn

KEY = Key.root(0)
INDICES = np.arange(20)


@message("several")
class Several(Message):
    """Models by name, a tree that does not count, and perhaps predictions."""

    models: Mapping[str, Tree] = counted()
    other: Tree
    values: np.ndarray[Any, np.dtype[np.float32]] | None = counted(default=None)


def codec_of(
    way: Any = "up",
    *,
    models: Any = (),
    logits: Any = (),
    feedback: bool = False,
    most: int | None = None,
) -> MessageCodec:
    chains = {
        "models": {"chain": list(models), "least": "1 B", "error_feedback": feedback},
        "logits": {"chain": list(logits), "least": "1 B"},
    }
    return MessageCodec(CodecConfig.model_validate({way: chains}), way, most)


def update(**arrays: Any) -> ModelUpdate:
    tree = freeze(arrays or {"w": drawn(20, 30), "b": drawn(30)})
    return ModelUpdate.of(Model("mlp", tree, {"mean": drawn(3)}), 7)


def logits(rows: Any, form: Any = "logits") -> LogitsUp:
    return LogitsUp(np.asarray(rows, np.float32), form, 1.0, indices_digest(INDICES))


def over_the_wire(codec: MessageCodec, sent: Message) -> Message:
    """Return a coded message as a receiver has it from its bytes."""
    kinds = Kinds((*COMMON, *map(coded_kind, COMMON), Several, coded_kind(Several)))
    frame = pack(codec.encode(sent, KEY).message).frame(sender=0, receiver=SERVER, round=1, exchange="train")
    return decode(frame.join(), kinds)[1]


def test_trees_hold_models_and_arrays_of_float32_logits() -> None:
    assert held_by(ModelUpdate) == {"params": "models"}
    assert held_by(LogitsUp) == {"values": "logits"}
    assert held_by(Several) == {"models": "models", "values": "logits"}
    assert coded_kind(Several).KIND == "several+coded"
    assert coded_kind(Several) is coded_kind(Several)


@pytest.mark.parametrize("sent", [update(), Several({"a": {"w": drawn(9, 8)}, "b": {}}, {"k": drawn(3)})])
def test_a_coded_message_is_decoded_from_its_bytes(sent: Message) -> None:
    codec = codec_of(models=["int8"])
    received = over_the_wire(codec, sent)
    assert received.ORIGINAL is type(sent)
    again = codec.decode(received)
    assert type(again) is type(sent)
    assert same(again, codec.decode(codec.encode(sent, KEY).message))
    for path, tree in trees_in(sent).items():
        assert trees_in(again)[path].keys() == tree.keys()
    if isinstance(again, ModelUpdate):
        assert same(ModelUpdate("mlp", {}, again.buffers, 7), ModelUpdate("mlp", {}, update().buffers, 7))


def test_what_is_not_coded_travels_as_it_is() -> None:
    codec, sent = codec_of(logits=["int8"]), update()
    assert codec.encode(sent, KEY).message is sent
    assert codec.decode(sent) is sent
    assert codec.like(sent) is sent
    assert codec.flops(sent) == (0, 0)
    assert codec.flops(None) == (0, 0)


def test_the_length_and_the_counts_without_codecs_are_known() -> None:
    codec, sent = codec_of(models=["int8"]), update()
    plain, coded = pack(sent), pack(codec.encode(sent, KEY).message)
    frame = plain.frame(sender=0, receiver=SERVER, round=1, exchange="train")
    assert coded.plain_bytes("train") == len(frame)
    assert plain.plain_bytes("train") is None
    assert coded.num_parameters == plain.num_parameters == 630
    like = pack(codec.like(sent)).frame(sender=0, receiver=SERVER, round=1, exchange="train")
    assert len(like) == len(coded.frame(sender=0, receiver=SERVER, round=1, exchange="train")) < len(frame)
    with pytest.raises(RuntimeError, match="only the form"):
        stands_for(codec.encode(sent, KEY).message).params["w"]  # type: ignore[attr-defined]


def test_what_is_pending_stays_pending_and_is_computed_once() -> None:
    tree, times = {"w": drawn(20, 30)}, [0]

    def compute() -> Tree:
        times[0] += 1
        return freeze(tree)

    pending = PendingTree(Form.of(tree), compute)
    codec = codec_of(models=["int8"], feedback=True)
    encoded = codec.encode(ModelUpdate("mlp", pending, {}, 1), KEY)
    decoded = codec.decode(encoded.message)
    pack(encoded.message)
    assert times == [0]
    params, residual = decoded.params, encoded.residuals["params"]  # type: ignore[attr-defined]
    assert np.array_equal(tree["w"] - params["w"], residual["w"])
    assert times == [1]
    concrete = codec.encode(ModelUpdate("mlp", tree, {}, 1), KEY).message
    assert same(codec.decode(concrete), decoded)


def test_a_length_that_depends_on_values_computes_them() -> None:
    pytest.importorskip("zstandard")
    tree = {"w": np.zeros((20, 30), np.float32)}
    pending = PendingTree(Form.of(tree), lambda: freeze(tree))
    codec_of(models=["zstd"]).encode(ModelUpdate("mlp", pending, {}, 1), KEY)
    assert not pending.is_pending


@pytest.mark.parametrize(
    "chain", [["int8"], ["hard_labels"], [{"name": "top_classes", "params": {"classes": 1}}]]
)
def test_probabilities_stay_probabilities(chain: list[Any]) -> None:
    codec = codec_of(logits=chain)
    rows = np.abs(drawn(20, 4)) / np.abs(drawn(20, 4)).sum(axis=1, keepdims=True)
    decoded = codec.decode(over_the_wire(codec, logits(rows, "probs")))
    values = decoded.values  # type: ignore[attr-defined]
    assert (values >= 0).all()
    assert np.allclose(values.sum(axis=1), 1)
    assert np.abs(values - rows).max() < 0.02 or np.array_equal(values.argmax(axis=1), rows.argmax(axis=1))


def test_hard_labels_of_probabilities_are_one_hot() -> None:
    codec = codec_of(logits=["hard_labels"])
    decoded = codec.decode(over_the_wire(codec, logits([[0.7, 0.3]] * 20, "probs")))
    assert decoded.values.tolist() == [[1, 0]] * 20  # type: ignore[attr-defined]


def test_rows_of_zeros_become_uniform() -> None:
    codec = codec_of(logits=["float16"])
    decoded = codec.decode(over_the_wire(codec, logits([[0, 0]] * 20, "probs")))
    assert decoded.values.tolist() == [[0.5, 0.5]] * 20  # type: ignore[attr-defined]


def test_a_coded_message_where_nothing_is_coded_is_refused() -> None:
    sent = codec_of(models=["int8"]).encode(update(), KEY).message
    with pytest.raises(DecodeError, match="nothing of it is coded here"):
        codec_of(logits=["int8"]).decode(sent)
    with pytest.raises(DecodeError, match="arrays where"):
        codec_of(models=["float16", "zstd"]).decode(sent)


def test_several_arrays_where_one_belongs_are_refused() -> None:
    codec = codec_of(logits=["int8"])
    values = {
        name: getattr(codec.encode(logits(drawn(20, 4)), KEY).message, name) for name in LogitsUp.PLAN.names
    }
    chain = codec.config.of("up", "logits").made
    for arrays in (
        {"": drawn(20, 4), "x": drawn(20, 4)},
        {"x": drawn(20, 4)},
        {"": np.zeros((20, 4), np.int64)},
    ):
        values["values"] = chain.encode(arrays, KEY).tree
        with pytest.raises(ValueError, match="it is one of float32"):
            coded_kind(LogitsUp)(**values)


def test_a_message_that_stands_for_too_much_is_refused() -> None:
    values = {name: getattr(update(), name) for name in ModelUpdate.PLAN.names}
    values["params"] = {"w": np.empty((0, 2**15, 2**15), np.float32)}
    with pytest.raises(ValueError, match="stands for 4294967296 bytes"):
        coded_kind(ModelUpdate)(**values)
    values["params"] = {"w": np.empty((0, 20, 30), np.float32)}
    for codec, is_refused in (
        (codec_of(models=["int8"], most=500), True),
        (codec_of(models=["int8"]), False),
    ):
        with pytest.raises(DecodeError, match="stands for 600 scalars" if is_refused else "arrays where"):
            codec.decode(coded_kind(ModelUpdate)(**values))


@given(data=st.data())
def test_any_coded_bytes_are_a_message_or_a_decode_error(data: st.DataObject) -> None:
    codec = codec_of(
        models=["delta", {"name": "topk", "params": {"share": 0.2}}, "int8"], logits=["top_classes"]
    )
    kinds = Kinds((*COMMON, *map(coded_kind, COMMON)))
    sent: Message = data.draw(st.sampled_from([update(), logits(drawn(20, 4), "probs")]))
    zero = freeze({"w": np.zeros((20, 30), np.float32), "b": np.zeros(30, np.float32)})
    packed = pack(codec.encode(sent, KEY, lambda name, form: zero).message)
    spoilt = bytearray(packed.frame(sender=0, receiver=SERVER, round=1, exchange="train").join())
    for _ in range(data.draw(st.integers(1, 4))):
        spoilt[data.draw(st.integers(0, len(spoilt) - 1))] = data.draw(st.integers(0, 255))
    try:
        _, received = decode(bytes(spoilt), kinds)
        pack(received).plain_bytes("train")
        codec.decode(received, lambda name, form: zero if form.keys() == zero.keys() else None)
    except DecodeError as error:
        assert str(error)  # noqa: PT017 - either is right


def test_what_was_left_out_of_another_form_does_not_count() -> None:
    codec = codec_of(models=["int8"], feedback=True)
    other = {"params": freeze({"w": drawn(1, 30)})}
    plain, given_other = (codec.encode(update(), KEY, residuals=left) for left in (None, other))
    assert same(plain.message, given_other.message)


def test_of_small_arrays_nothing_is_left_out() -> None:
    chains = {"chain": ["int8"], "least": "1 kB", "error_feedback": True}
    codec = MessageCodec(CodecConfig.model_validate({"up": {"models": chains}}), "up")
    tree = {"w": drawn(20, 30), "b": drawn(3)}
    pending = PendingTree(Form.of(tree), lambda: freeze(tree))
    residual = codec.encode(ModelUpdate("mlp", pending, {}, 1), KEY).residuals["params"]
    assert [*residual] == [*dict(residual)] == ["w"]


def test_trees_of_another_chain_stay_as_they_are() -> None:
    sent = Several({"a": {"w": np.array([1 / 3])}}, {}, drawn(3, 4))
    codec = codec_of(logits=["int8"])
    decoded = codec.decode(over_the_wire(codec, sent))
    assert decoded.models["a"]["w"].tolist() == [1 / 3]  # type: ignore[attr-defined]


def test_a_message_that_its_class_refuses_is_a_decode_error() -> None:
    codec = codec_of(logits=["int8"])
    values = {
        name: getattr(codec.encode(logits(drawn(20, 4)), KEY).message, name) for name in LogitsUp.PLAN.names
    }
    values["temperature"] = 0.0
    with pytest.raises(DecodeError, match="temperature is 0"):
        codec.decode(coded_kind(LogitsUp)(**values))


LARGE = np.full((2, 3), 1e6, np.float32)
"""Values beyond those of float16."""


def test_values_beyond_float16_are_counted_by_the_server_once() -> None:
    large = update(w=LARGE)
    up, down = codec_of("up", models=["float16"]), codec_of("down", models=["float16"])
    for codec, counted_when_sent in ((up, 0), (down, 6)):
        coded = codec.encode(large, KEY).message
        assert codec.num_saturated == counted_when_sent
        received = codec.decode(coded)
        assert codec.num_saturated == counted_when_sent
        if codec is up:
            codec.count(received)  # it is merged
            codec.count(received)
        assert codec.num_saturated == 6


def test_values_that_are_decoded_after_they_count_are_counted() -> None:
    codec = codec_of("up", models=["float16"])
    large = PendingTree(form_of(freeze({"w": LARGE})), lambda: freeze({"w": LARGE}))
    sent = ModelUpdate.of(Model("mlp", large, {"mean": drawn(3)}), 7)
    received = cast(ModelUpdate, codec.decode(codec.encode(sent, KEY).message))
    codec.count(received)
    assert codec.num_saturated == 0
    assert np.isfinite(received.params["w"]).all()
    assert codec.num_saturated == 6
