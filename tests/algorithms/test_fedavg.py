"""FedAvg: the specification's sanity checks (5.A.3)."""

import asyncio
from typing import Any

import numpy as np
import pytest

from fedsim.algorithms.base import Reply
from fedsim.params import Model
from fedsim.wire import ModelUpdate, pack
from tests.algorithms.stand_ins import Server


def _model(value: float, architecture: str = "mlp") -> Model:
    return Model(architecture, {"w": np.full((2,), value, np.float32)})


def _reply(client: int, value: float, num_samples: int, weight: float = 1.0) -> Reply:
    message = ModelUpdate.of(_model(value), num_samples=num_samples)
    return Reply(client, 0, "train", 0, 0, weight, message)


def _merge(algorithm: Any, replies: list[Reply]) -> Any:
    state = _model(9.0)
    return asyncio.run(algorithm.merge(Server(), state, replies)).params["w"]


@pytest.mark.parametrize(
    ("weighting", "weight", "mean"), [("samples", 1.0, 3.0), ("uniform", 1.0, 2.5), ("samples", 0.5, 2.5)]
)
def test_mean_is_weighted_by_samples_or_uniform_and_stale_replies_weigh_less(
    weighting: str, weight: float, mean: float, world: Any
) -> None:
    replies = [_reply(0, 1.0, 10), _reply(1, 4.0, 20, weight=weight)]
    assert _merge(world.algorithm("fedavg", weighting=weighting), replies).tolist() == [mean, mean]


def test_equal_models_average_to_themselves_exactly(world: Any) -> None:
    third = float(np.float32(1) / np.float32(3))
    merged = _merge(world.algorithm("fedavg"), [_reply(k, third, k + 1) for k in range(7)])
    assert merged.tobytes() == np.full((2,), third, np.float32).tobytes()


def test_frame_costs_eight_bytes_more_for_the_sample_count() -> None:
    model = _model(1.0)
    small, large = (
        pack(ModelUpdate.of(model, num_samples=n)).frame(sender=0, receiver=-1, round=1, exchange="train")
        for n in (1, 2**40)
    )
    assert len(large) - len(small) <= 8 + 15  # the number, and what alignment makes of it
