"""FedAMP's weights: how much each model weighs in each client's mixture.

All functions are pure, for ``server.call``. m: models.
"""

from __future__ import annotations

import numpy as np

from fedsim.algorithms.common.similarity import cosines
from fedsim.params import Array

MASS = 0.5
"""What others weigh in a client's mixture, the mean over clients, where alpha is found."""


def squared_distances(products: Array) -> Array:
    """Return squared distances of vectors from their inner products, both ``[m, m]``."""
    squares = np.diagonal(products)
    distances: Array = np.maximum(squares[:, None] + squares[None, :] - 2 * products, 0)
    np.fill_diagonal(distances, 0)
    return distances


def scales(distances: Array, sigma: float | None, alpha: float | None) -> tuple[float | None, float | None]:
    """Return sigma and alpha, found from squared distances ``[m, m]`` where they are not known yet.

    Sigma is the median distance; alpha is such that others weigh :data:`MASS` in a mixture. Both are None as
    long as there are no two models that differ.
    """
    others = ~np.eye(len(distances), dtype=np.bool_)
    if sigma is None and others.any():
        sigma = float(np.median(distances[others])) or None
    if alpha is None and sigma is not None:
        nearness = float(np.exp(-distances / sigma)[others].sum() / len(distances))
        alpha = MASS * sigma / nearness if nearness else None
    return sigma, alpha


def by_distance(distances: Array, sigma: float | None, alpha: float) -> tuple[Array, int]:
    """Return the weights ``alpha / sigma * exp(-distance / sigma)`` of others, and of oneself the rest.

    Args:
        distances: Squared distances of models, ``[m, m]``.
        sigma: Their scale; None where it is not known: all keep to themselves.
        alpha: Size of the step.

    Returns:
        Weights ``[m, m]``, rows that sum to one, and in how many rows others would weigh more than 1: there
        they are scaled to ``1 - 1/m``.
    """
    weights = np.zeros(distances.shape)
    if sigma is not None:
        weights = alpha / sigma * np.exp(-distances / sigma)
        np.fill_diagonal(weights, 0)
    mass = weights.sum(axis=1)
    heavy = mass > 1
    weights[heavy] *= ((1 - 1 / len(weights)) / mass[heavy])[:, None]
    np.fill_diagonal(weights, np.maximum(1 - weights.sum(axis=1), 0))
    return weights, int(heavy.sum())


def by_cosine(products: Array, sigma: float) -> Array:
    """Return weights ``[m, m]``: ``1 / m`` for oneself, the rest for others as ``exp(sigma cos)``."""
    m = len(products)
    weights = np.exp(sigma * (cosines(products) - 1))
    np.fill_diagonal(weights, 0)
    weights *= (1 - 1 / m) / np.where(m > 1, weights.sum(axis=1, keepdims=True), 1)
    np.fill_diagonal(weights, 1 / m)
    return weights
