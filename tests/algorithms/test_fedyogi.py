"""FedYogi: its second moment by hand (specification 5.B.4)."""

from __future__ import annotations

from typing import Any

import numpy as np


def test_the_second_moment_moves_by_the_square_of_the_change(world: Any) -> None:
    # Down by a quarter of a small square, up by a quarter of a large one, where FedAdam would go to 3.25.
    algorithm = world.algorithm("fedyogi", beta2=0.75)
    v, squared = np.array([4.0, 1.0, 1.0]), np.array([1.0, 9.0, 1.0])
    assert algorithm.second_moment(v, squared).tolist() == [3.75, 3.25, 1.0]
