"""Ditto: the specification's sanity checks (5.D.7)."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from fedsim.algorithms.common.tree_arithmetic import squared_distance
from fedsim.runtime.run import RunResult


def _named(result: RunResult, name: str) -> dict[int, bytes]:
    return {client: models[name].digest() for client, models in result.models.items()}


KEPT: dict[str, Any] = {"training": {"momentum": 0.9, "keep_optimiser": True}, "clients_per_round": 3}
PLAIN: dict[str, Any] = {"verify": False}
ways = pytest.mark.parametrize("changes", [PLAIN, KEPT])


@ways
@pytest.mark.parametrize("lam", [0.0, 1.0])
def test_the_global_model_is_that_of_fedavg_bit_for_bit(
    lam: float, changes: dict[str, Any], world: Any
) -> None:
    ditto = world.run(world.algorithm("ditto", lam=lam), **changes)
    fedavg = world.run(world.algorithm("fedavg"), **changes)
    assert _named(ditto, "global") == _named(ditto, "gm") == _named(fedavg, "global")
    assert ditto.totals == fedavg.totals
    assert ditto.final.global_ == fedavg.final.global_
    assert ditto.final.others == {"gm": fedavg.final.mean}


def test_a_stronger_pull_brings_models_nearer(world: Any) -> None:
    def distance(lam: float) -> float:
        result = world.run(world.algorithm("ditto", lam=lam), rounds=1, training={"epochs": 2}, **PLAIN)
        # After one round all own models are held near the start values.
        start = world.parts(world.algorithm("ditto")).initial()("mlp").params
        return float(
            sum(squared_distance(models["personal"].params, start) for models in result.models.values())
        )

    distances = [distance(lam) for lam in (0.0, 1.0, 8.0)]
    assert all(near < far for far, near in pairwise(distances))


def test_one_step_by_hand(world: Any) -> None:
    # All samples are one batch. In round 1 both models are at the start values, where the pull is zero; in
    # round 2 the own model differs from Local's by the pull to what the server has merged.
    training = {"steps": 1, "batch_size": 1000, "lr": 0.1}
    own, pulled = (
        world.run(world.algorithm("ditto", lam=lam), rounds=2, training=training, **PLAIN)
        for lam in (0.0, 2.0)
    )
    first = world.run(world.algorithm("ditto"), rounds=1, training=training, **PLAIN)
    for client, models in first.models.items():
        for name, before in models["personal"].params.items():
            pull = 0.1 * 2.0 * (before - models["global"].params[name])
            wanted = own.models[client]["personal"].params[name] - pull
            np.testing.assert_allclose(pulled.models[client]["personal"].params[name], wanted, atol=1e-6)
