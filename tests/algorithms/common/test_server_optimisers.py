"""Server optimisers: what they share (specification 5.B.4)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedsim.algorithms.base import Reply
from fedsim.algorithms.common.server_optimisers import ServerState
from fedsim.params import Model
from fedsim.wire import ModelUpdate

NAMES = ["fedadagrad", "fedadam", "fedavgm", "fedyogi"]


def _model(value: float) -> Model:
    return Model(
        "mlp", {"w": np.array([value], np.float32)}, {"mean": np.array([value], np.float32), "n": np.array(7)}
    )


def _merged(algorithm: Any, state: ServerState, *changes: tuple[float, int]) -> ServerState:
    replies = [
        Reply(client, 0, "train", 0, 0, 1.0, ModelUpdate.of(_model(value), samples))
        for client, (value, samples) in enumerate(changes)
    ]
    after: ServerState = asyncio.run(algorithm.merge(None, state, replies))
    return after


@pytest.mark.parametrize("name", NAMES)
def test_steps_are_taken_from_the_mean_and_buffers_are_averaged(name: str, world: Any) -> None:
    algorithm = world.algorithm(name, server_lr=0.5)
    before = algorithm.start(SimpleNamespace(initial_model=lambda: _model(1.0)))
    after = _merged(algorithm, before, (2.0, 30), (6.0, 10))  # a mean of 3: a change of 2
    step, *moments = algorithm.step(np.array([2.0]), *before.moments["w"])
    assert after.model.params["w"].tolist() == [np.float32(1 + 0.5 * step.item())]
    assert after.model.params["w"].dtype == np.float32
    assert [one.tolist() for one in after.moments["w"]] == [one.tolist() for one in moments]
    assert after.model.buffers["mean"].tolist() == [3.0]
    assert after.model.buffers["n"] == 7
    assert before.model.params["w"].tolist() == [1.0]


def test_the_mean_of_the_changes_is_not_rounded_as_the_mean_of_the_models_is(world: Any) -> None:
    # Next to 2 ** 24 in float32 is 2 ** 24 + 2: their mean is no float32, the mean change is 1.
    algorithm = world.algorithm("fedavgm")
    before = algorithm.start(SimpleNamespace(initial_model=lambda: _model(2.0**24)))
    after = _merged(algorithm, before, (2.0**24, 1), (2.0**24 + 2, 1))
    assert [one.tolist() for one in after.moments["w"]] == [[1.0]]
