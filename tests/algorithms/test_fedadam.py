"""FedAdam: its second moment by hand, and where it meets FedYogi (specification 5.B.4)."""

from __future__ import annotations

from typing import Any

import numpy as np


def test_moments_decay_and_nothing_is_corrected_for_bias(world: Any) -> None:
    algorithm = world.algorithm("fedadam", beta1=0.5, beta2=0.75, epsilon=1.0)
    u, v = algorithm.first_moments(np.zeros(1))
    assert (u.tolist(), v.tolist()) == ([0.0], [1.0])
    step, u, v = algorithm.step(np.array([4.0]), u, v)
    assert (u.tolist(), v.tolist()) == ([2.0], [0.75 + 4.0])
    assert step.tolist() == [2.0 / (np.sqrt(4.75) + 1)]


def test_from_zero_the_first_step_is_fedyogi_s(world: Any) -> None:
    zero, change = np.zeros(3), np.array([0.5, -2.0, 0.0])
    adam, yogi = (world.algorithm(name).step(change, zero, zero) for name in ("fedadam", "fedyogi"))
    for mine, its in zip(adam, yogi, strict=True):
        np.testing.assert_allclose(mine, its, rtol=1e-12)
