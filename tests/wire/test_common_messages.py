"""The common messages: what they carry, count and refuse."""

from dataclasses import replace

import numpy as np
import pytest

from fedsim.params import Model
from fedsim.wire import (
    SERVER,
    LogitsDown,
    LogitsUp,
    ModelBroadcast,
    ModelUpdate,
    PublicBatch,
    PublicData,
    indices_digest,
    num_parameters,
    pack,
)

MODEL = Model("mlp", {"w": np.zeros((2, 3), np.float32)}, {"seen": np.array(4)})


def test_a_model_comes_out_as_it_went_in() -> None:
    for sent in (ModelBroadcast.of(MODEL), ModelUpdate.of(MODEL, 10)):
        assert sent.model is MODEL
        assert sent.model.params["w"] is MODEL.params["w"]
        assert num_parameters(sent) == 6  # buffers do not count


def test_counts_of_knowledge_messages() -> None:
    indices = np.arange(5)
    values = np.zeros((5, 10), np.float32)
    assert num_parameters(PublicBatch(indices)) == 0
    assert num_parameters(PublicData(indices, values)) == 0
    assert num_parameters(LogitsUp(values, "probs", 1.0, indices_digest(indices), indices)) == 50
    assert num_parameters(LogitsDown(values, "logits", 1.0, 0)) == 50


def test_indices_digest_knows_values_and_order_but_not_layout() -> None:
    indices = np.array([5, 1, 9])
    # blake2b of the three numbers as little-endian int64, first eight bytes, without the lowest bit
    assert indices_digest(indices) == 5152495212092207413
    assert indices_digest(indices.astype(np.int32)) == indices_digest(indices)
    assert indices_digest(indices.astype(">i8")) == indices_digest(indices)
    assert indices_digest(np.repeat(indices, 2)[::2]) == indices_digest(indices)
    assert indices_digest(indices[::-1]) != indices_digest(indices)
    assert 0 <= indices_digest(np.array([], np.int64)) < 2**63
    with pytest.raises(ValueError, match="integers of shape"):
        indices_digest(np.zeros(3))
    with pytest.raises(ValueError, match="integers of shape"):
        indices_digest(np.zeros((3, 1), int))


@pytest.mark.parametrize("cls", [LogitsUp, LogitsDown])
def test_knowledge_that_contradicts_itself_is_refused(cls: type[LogitsUp] | type[LogitsDown]) -> None:
    indices = np.arange(3)
    good = cls(np.zeros((3, 2), np.float32), "probs", 2.0, indices_digest(indices), indices)
    with pytest.raises(ValueError, match=r"shape \[p, N\], these \[3\]"):
        replace(good, values=np.zeros(3, np.float32))
    with pytest.raises(ValueError, match=r"temperature is 0\.0"):
        replace(good, temperature=0.0)
    with pytest.raises(ValueError, match=r"here \[3\], these \[2\]"):
        replace(good, indices=np.arange(2))
    with pytest.raises(ValueError, match="not the digest"):
        replace(good, indices=np.array([2, 1, 0]))


def test_other_contradictions_are_refused() -> None:
    with pytest.raises(ValueError, match="num_samples is -1"):
        ModelUpdate.of(MODEL, -1)
    with pytest.raises(ValueError, match=r"indices have the shape \[p\]"):
        PublicBatch(np.zeros((2, 2), int))
    for indices, values in ((np.arange(3), np.zeros((2, 4))), (np.zeros((2, 2), int), np.zeros((2, 2)))):
        with pytest.raises(ValueError, match="one sample for each index"):
            PublicData(indices, values)


def test_public_samples_are_data_of_one_byte_a_scalar() -> None:
    indices, pixels = np.arange(5), np.zeros((5, 3, 8, 8), np.uint8)
    packed = pack(PublicData(indices, pixels))
    assert (packed.is_data, packed.num_parameters) == (True, 0)
    frame = packed.frame(sender=SERVER, receiver=0, round=1, exchange="share")
    assert 5 * 192 + 5 * 8 < len(frame) < 5 * 192 + 5 * 8 + 250
    assert not pack(PublicBatch(indices)).is_data
