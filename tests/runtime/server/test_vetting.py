"""What a reply has to be before any hook merges it."""

import math
from typing import Any

import numpy as np
import pytest

from fedsim.algorithms.base import Exchange
from fedsim.params import Model
from fedsim.wire import ModelUpdate


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda world: world.Other(), "a frame of kind 'other' where one of kind 'word' belongs"),
        (lambda world: None, "no frame where one of kind 'word' belongs"),
        (lambda world: world.word(math.nan), "values holds NaN or an infinity"),
        (lambda world: world.word(-math.inf), "values holds NaN or an infinity"),
        (lambda world: world.word(note=math.nan), "note holds NaN or an infinity"),
        (lambda world: world.Word(np.ones((2, 2), np.float32)), "shape (2, 2), not (3,)"),
    ],
)
def test_a_reply_that_cannot_be_merged_is_rejected_alone(answer: Any, reason: str, world: Any) -> None:
    def vet(reply: Any) -> str | None:
        shape = reply.message.values.shape
        return None if shape == (3,) else f"shape {shape}, not (3,)"

    algorithm = world.Scripted(
        answer=lambda client, exchange: answer(world) if client.client == 1 else world.word(), vet=vet
    )
    result, trace = world.play(algorithm)
    assert algorithm.noted("merge") == [(1, (0, 2), 5.0)]
    assert (result.rounds[0].merged, result.rounds[0].rejected, result.rounds[0].dropped) == (2, 1, 0)
    assert result.rejections == {reason: 1}
    assert result.by_client["rejected"].tolist() == [0, 1, 0]
    assert [record[2:] for record in trace if record[1] == "reject"] == [(1, 0, reason)]


def test_a_frame_is_rejected_where_none_belongs(world: Any) -> None:
    algorithm = world.Scripted([Exchange("talk")], answer=lambda client, exchange: world.Other())
    result, _ = world.play(algorithm)
    assert result.rejections == {"a frame of kind 'other' where no frame belongs": 3}
    assert algorithm.noted("merge") == []


@pytest.mark.parametrize(
    ("num_samples", "is_merged"), [(1, True), (4, True), (5, False), (0, False), (2**63 - 1, False)]
)
def test_a_reply_is_based_on_no_more_samples_than_its_client_has(
    num_samples: int, is_merged: bool, world: Any
) -> None:
    # Client 1 holds 4 training samples, the others more: it is its own number that counts.
    model = Model("linear", {"w": np.ones(3, np.float32)})
    algorithm = world.Scripted(
        [Exchange("talk", reply=ModelUpdate)],
        answer=lambda client, exchange: ModelUpdate.of(model, num_samples if client.client == 1 else 9),
    )
    result, _ = world.play(algorithm, sizes=(9, 4, 9))
    fault = f"num_samples is {num_samples}, not from 1 to the 4 training samples of the client"
    assert result.rejections == ({} if is_merged else {fault: 1})
    assert result.by_client["merged"].tolist() == [1, int(is_merged), 1]
