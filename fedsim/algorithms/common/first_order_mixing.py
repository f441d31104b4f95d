"""FedFomo's arithmetic: whose models a client is offered, and what it makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite, sqrt

import numpy as np

from fedsim.algorithms.common.tree_arithmetic import squared_distance
from fedsim.params import Array, Model, mean_model
from fedsim.rng import Key


def best_offers(key: Key, worth: Mapping[int, float], most: int, epsilon: float) -> tuple[int, ...]:
    """Return the clients of the greatest worth, sorted. Ties are broken at random.

    Args:
        key: Names the draw.
        worth: By client, what its models have been worth.
        most: How many are offered at most.
        epsilon: Probability with which each of them is replaced by any other.
    """
    draw = key.numpy()
    others = sorted(draw.permutation(list(worth)).tolist(), key=lambda other: -worth[other])
    chosen, left = others[:most], others[most:]
    for place in range(len(chosen)):
        if left and draw.uniform() < epsilon:
            chosen[place] = left.pop(int(draw.integers(len(left))))
    return tuple(sorted(chosen))


def moved(previous: Model, models: Sequence[Model], gains: Sequence[float]) -> tuple[Model | None, Array]:
    """Return ``previous + sum_l weight_l (model_l - previous)``, buffers included, and the weights.

    A weight is the gain in loss for the distance from the previous model, and 0 where there is none. For the
    sum they are scaled to sum to one, which makes it their mean.

    Returns:
        The model, None where no model gains anything; and the weights before scaling, float32 ``[len]``.
    """
    gained = [
        gain / (sqrt(squared_distance(model.params, previous.params)) + 1e-5)
        if gain > 0 and isfinite(gain)
        else 0
        for model, gain in zip(models, gains, strict=True)
    ]
    weights = np.array(gained, np.float32)
    total, some = sum(gained), [(model, one) for model, one in zip(models, gained, strict=True) if one]
    if not some:
        return None, weights
    return mean_model([model for model, _ in some], [one / total for _, one in some]), weights
