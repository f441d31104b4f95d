"""KT-pFL's coefficient matrix: the weights of teachers, and how they are learned.

``c[n, m]`` is the weight of teacher m for student n; rows are non-negative and sum to one (specification
5.E.1, D-000-03). In a round only the block of the m clients that replied moves, and each row keeps its mass
there, so a whole row keeps its sum.

All functions are pure, for ``server.call``. m: clients, p: public samples, N: classes. Shapes: a block ``[m,
m]``; the weights of some rows ``[r, m]``; ``values``, probabilities ``[m, p, N]``, zero where a sample is
missing; ``given``, booleans ``[m, p]``; ``mass``, sums of rows in the block ``[m]``; ``factors`` of each
student's gradient ``[m]``; ``uniform`` is 1/K.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch

from fedsim.algorithms.common.distillation import SMALLEST
from fedsim.config import Config
from fedsim.params import Array
from fedsim.ranges import Coefficient

SHARPNESS = 5.0  # factor of c in the public code's softmax


class CoefficientConfig(Config):
    """How the coefficient matrix is learned."""

    lam: Coefficient = 1.0
    """Weight of distillation in the objective, lambda, in the step of c (not in the paper; 1 is assumed)."""
    rho: Coefficient = 0.7
    """Strength with which c is pulled towards 1/K (0.7: public code; the paper tries 0.1 to 0.7)."""
    c_lr: Coefficient = 0.01
    """Size of a step of c, eta_3 (the paper's ablations: 0.01); 0 keeps c as it is."""
    c_step: Literal["implicit", "explicit"] = "implicit"
    """How a step takes the pull towards 1/K: implicitly, stable for any rho, or as equation (7) of the paper
    prints it, which diverges where c_lr * rho > 1."""
    c_weighting: Literal["unit", "data"] = "unit"
    """Weight of a client's distance in the gradient: 1, or its share of all training samples as in equation
    (7), with which c hardly moves. A share is among the clients heard of so far; its number of samples
    travels with the upload."""
    c_norm: Literal["projection", "softmax5"] = "projection"
    """What keeps rows on the simplex: the projection of each step alone, or, once a round after it, the
    public code's softmax of 5 c."""


def product(left: Array, right: Array) -> Array:
    """Return the matrix product, float64."""
    # By torch, which computes in one thread: the sums of NumPy depend on the number of cores.
    factors = [torch.from_numpy(np.require(array, np.float64, ["W"])) for array in (left, right)]
    result: Array = torch.matmul(*factors).numpy()
    return result


def restricted(block: Array) -> Array:
    """Return the rows of a block ``[r, m]`` scaled to sum to one; uniform where a row has no mass."""
    mass = block.sum(axis=1, keepdims=True)
    there = mass > 0
    return np.where(there, block / np.where(there, mass, 1), 1 / max(block.shape[1], 1))


def mixture(weights: Array, values: Array, given: Array) -> Array:
    """Return each student's teacher: the weighted mean of the predictions, float64 ``[r, p, N]``.

    For each sample the weights ``[r, m]`` are scaled to the senders that gave it, or equal where those have
    none. A sample that nobody gave is zero (specification 3.5, E10).
    """
    mass = product(weights, given)[:, :, None]
    flat = values.reshape(len(values), -1)
    total = product(weights, flat).reshape(len(weights), *values.shape[1:])
    mixed: Array = total / np.where(mass > 0, mass, 1)
    if not (mass > 0).all():
        senders = np.maximum(given.sum(axis=0), 1)[:, None]
        mixed = np.where(mass > 0, mixed, values.sum(axis=0, dtype=np.float64) / senders)
    return mixed


def mixture_flops(num_clients: int, num_samples: int, num_classes: int) -> float:
    """Return the operations of :func:`mixture`."""
    return float(max(1, 2 * num_clients**2 * num_samples * num_classes))


def gradient(weights: Array, values: Array, given: Array) -> Array:
    """Return the gradient of the mean of KL(teacher || student) over a student's samples, ``[m, m]``.

    It is the mean over samples of ``sum_j s_m log(T_n / s_n)``, less what is equal for a whole row: that
    changes no projection.
    """
    teacher = mixture(weights, values, given)
    ratio = np.log(np.maximum(teacher, SMALLEST)) - np.log(np.maximum(values, SMALLEST, dtype=np.float64))
    mass = product(weights, given)
    counted = given & (mass > 0)
    ratio *= (counted / np.where(counted, mass, 1))[:, :, None]
    flat = values.reshape(len(values), -1)
    towards = product(ratio.reshape(len(ratio), -1), flat.T)
    level = product((ratio * teacher).sum(axis=2), given.T)
    result: Array = (towards - level) / np.maximum(given.sum(axis=1), 1)[:, None]
    return result


def project(rows: Array, mass: Array) -> Array:
    """Return the nearest non-negative rows that sum to ``mass``, float64 ``[r, m]``.

    Duchi, Shalev-Shwartz, Singer, Chandra: Efficient projections onto the l1-ball, ICML 2008, figure 1.
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


def step(block: Array, slope: Array, mass: Array, uniform: float, config: CoefficientConfig) -> Array:
    """Return the block after one step down ``slope``, each row projected onto the simplex of its mass."""
    pull = 2 * config.c_lr * config.rho
    if config.c_step == "implicit":
        moved = (block - config.c_lr * slope + pull * uniform) / (1 + pull)
    else:
        moved = block - config.c_lr * slope - pull * (block - uniform)
    return project(moved, mass)


def learned(
    block: Array,
    values: Array,
    given: Array,
    factors: Array,
    uniform: float,
    batch_size: int,
    config: CoefficientConfig,
) -> Array:
    """Return the block after one pass over the round's predictions, one step for each mini-batch."""
    mass = block.sum(axis=1)
    slopes = config.lam * factors[:, None]
    for start in range(0, values.shape[1], batch_size):
        batch = slice(start, start + batch_size)
        slope = slopes * gradient(restricted(block), values[:, batch], given[:, batch])
        block = step(block, slope, mass, uniform, config)
    return normalised(block, mass, config)


def learned_flops(num_clients: int, num_samples: int, num_classes: int) -> float:
    """Return the operations of :func:`learned`."""
    once = 20 * num_clients * num_samples * num_classes
    return 2 * mixture_flops(num_clients, num_samples, num_classes) + once


def learned_from_gram(
    block: Array, gram: Array, factors: Array, uniform: float, num_steps: int, config: CoefficientConfig
) -> Array:
    """Return the block after some steps on ``||sum_m c[n, m] w_m - w_n||^2``; ``gram`` is ``[m, m]``."""
    mass = block.sum(axis=1)
    slopes = 2 * config.lam * factors[:, None]
    for _ in range(num_steps):
        slope = slopes * (product(restricted(block), gram) - gram)
        block = step(block, slope, mass, uniform, config)
    return normalised(block, mass, config)


def normalised(block: Array, mass: Array, config: CoefficientConfig) -> Array:
    """Return the block at the end of a round: as it is, or the softmax of 5 c with each row's mass."""
    if config.c_norm == "projection":
        return block
    sharp = SHARPNESS * restricted(block)
    sharp = np.exp(sharp - sharp.max(axis=1, keepdims=True))
    result: Array = mass[:, None] * restricted(sharp)
    return result
