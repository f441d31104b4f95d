"""Projection onto a simplex: the nearest non-negative vector of a given sum.

Duchi, Shalev-Shwartz, Singer, Chandra: Efficient projections onto the l1-ball, ICML 2008, figure 1.
"""

from __future__ import annotations

import numpy as np

from fedsim.params import Array


def project(rows: Array, mass: Array) -> Array:
    """Return each row's nearest neighbour among non-negative rows that sum to its mass, float64 ``[r, m]``.

    Args:
        rows: ``[r, m]``, m at least 1.
        mass: ``[r]``, non-negative; a row of mass zero becomes zero.
    """
    rows, mass = rows.astype(np.float64), np.asarray(mass, np.float64)[:, None]
    falling = -np.sort(-rows, axis=1)
    excess = np.cumsum(falling, axis=1) - mass
    counts = np.arange(1, rows.shape[1] + 1)
    # As many entries stay positive as exceed the level that they themselves would set.
    kept = np.maximum((falling * counts > excess).sum(axis=1, keepdims=True), 1)
    level = np.take_along_axis(excess, kept - 1, axis=1) / kept
    projected: Array = np.where(mass > 0, np.maximum(rows - level, 0), 0)
    return projected
