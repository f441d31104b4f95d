"""Whole numbers in proportion to shares, and kinds dealt evenly."""

import numpy as np
from numpy.typing import NDArray


def apportion(total: int, weights: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return whole numbers in proportion to ``weights`` that sum to ``total``, by largest remainders."""
    # By a power of two, which changes no digit, so that the sum of huge ones is finite.
    scaled = np.ldexp(weights, -int(np.frexp(weights.max())[1]))
    exact = total * (scaled / scaled.sum())
    counts: NDArray[np.int64] = np.floor(exact).astype(np.int64)
    # The most that is left is one for each weight: each floor lost less than one.
    largest_first = np.argsort(counts - exact, kind="stable")
    counts[largest_first[: total - int(counts.sum())]] += 1
    return counts


def deal(num_kinds: int, num: int, generator: np.random.Generator) -> NDArray[np.int32]:
    """Return one of ``num_kinds`` kinds for each of ``num``, drawn: all equally often, to within one."""
    order = generator.permutation(num_kinds).astype(np.int32)
    return generator.permutation(order[np.arange(num) % num_kinds])
