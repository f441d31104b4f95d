"""FedAdagrad: its second moment by hand (specification 5.B.4)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest


def test_steps_become_shorter(world: Any) -> None:
    algorithm = world.algorithm("fedadagrad", epsilon=1e-3)
    u, v = algorithm.first_moments(np.zeros(1))
    for number in (1, 2, 3):
        step, u, v = algorithm.step(np.array([2.0]), u, v)
        assert v.item() == pytest.approx(4.0 * number, rel=1e-6)
        assert step.item() == pytest.approx(1 / np.sqrt(number), rel=1e-3)
