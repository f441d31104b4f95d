"""FedAvgM: the specification's sanity checks (5.B.4)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest


@pytest.mark.parametrize("clients_per_round", [None, 2])
def test_without_momentum_it_is_fedavg_but_for_rounding(clients_per_round: int | None, world: Any) -> None:
    # Bit for bit it is FedBuff: tests/algorithms/test_fedbuff.py.
    results, models = [], []
    for algorithm in (world.algorithm("fedavg"), world.algorithm("fedavgm", momentum=0.0)):
        seen = world.watched(algorithm)
        results.append(world.run(algorithm, clients_per_round=clients_per_round))
        models.append(seen[0]["global"])
    plain, fedavgm = results
    for name, array in models[0].params.items():
        np.testing.assert_allclose(models[1].params[name], array, rtol=0, atol=1e-6)
    assert fedavgm.totals == plain.totals
    assert fedavgm.simulated_s == plain.simulated_s


@pytest.mark.parametrize(
    ("params", "steps"),
    [({}, [2.0, 2.0]), ({"nesterov": False}, [2.0, 2.0]), ({"nesterov": True}, [3.0, 2.0])],
)
def test_the_velocity_remembers_earlier_changes(
    params: dict[str, bool], steps: list[float], world: Any
) -> None:
    # Changes of 2 and 1 with momentum 1/2: velocities of 2 and 2; Nesterov adds half of each to the change.
    algorithm = world.algorithm("fedavgm", momentum=0.5, **params)
    (velocity,), found = algorithm.first_moments(np.zeros(1)), []
    for change in (2.0, 1.0):
        step, velocity = algorithm.step(np.array([change]), velocity)
        found += step.tolist()
    assert found == steps
    assert velocity.tolist() == [2.0]
