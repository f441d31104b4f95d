"""A uniform sample of the clients that are there, without asking all of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedsim.params import Array
from fedsim.rng import Key

SMALL = 2048
"""Number of eligible clients up to which all are asked at once."""

BATCH = 64
"""Least number of places drawn at once."""

GIVE_UP_AT = 8
"""Inverse share of the eligible clients that are asked one by one before all the others are asked at once."""


def sample_available(eligible: Array, count: int, are_there: Callable[[Array], Array], key: Key) -> Array:
    """Draw up to ``count`` of the eligible clients that are there, uniformly and without replacement.

    Every ordered choice of ``count`` clients among those that are there is equally likely. For think of the
    eligible clients in a uniformly random order, and of going through it until ``count`` were found there:
    the ones that are there, taken alone, are in uniformly random order too, so the first ``count`` of them
    are such a choice. The random order is made as it is needed: places are drawn uniformly, and those drawn
    before are skipped, which draws the next element uniformly from the rest (rejection sampling). If few are
    there, that would go through almost everybody, so after a while those not yet seen are asked all at
    once, and the ones that are there are put in random order: the same law, since the order of the unseen
    does not depend on what was seen.
    """
    generator = key.numpy()
    num = len(eligible)
    drawn: list[Array] = []
    missing = count
    seen = np.zeros(num, np.bool_)
    asked = 0
    while missing and num > SMALL and asked * GIVE_UP_AT < num and missing * GIVE_UP_AT < num:
        places = generator.integers(0, num, max(BATCH, 2 * missing))
        # Of a place that comes twice the first counts, so the order in which places came is kept.
        _, firsts = np.unique(places, return_index=True)
        places = places[np.sort(firsts)]
        places = places[~seen[places]]
        seen[places] = True
        asked += len(places)
        there = eligible[places][are_there(eligible[places])][:missing]
        drawn.append(there)
        missing -= len(there)
    if missing:
        rest = eligible[~seen]
        rest = rest[are_there(rest)]
        drawn.append(generator.permutation(rest)[:missing])
    return np.concatenate([*drawn, eligible[:0]])
