from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedsim.config import Config
from fedsim.params import Array
from fedsim.rng import Key
from fedsim.runtime.policies.selectors.base import Candidates
from fedsim.runtime.policies.selectors.uniform import PLUGIN

UNIFORM = PLUGIN(Config())


def offered(clients: Array, sizes: Array | None = None) -> Candidates:
    return Candidates(
        clients, clients[:0], None, 0.0, lambda _: np.ones_like(clients) if sizes is None else sizes
    )


@given(st.sets(st.integers(0, 10_000), max_size=30), st.integers(0, 40), st.integers(0, 1000))
def test_chooses_so_many_candidates_each_at_most_once(clients: set[int], count: int, seed: int) -> None:
    candidates = np.array(sorted(clients), np.int64)
    chosen = UNIFORM.select(offered(candidates), count, Key.root(seed))
    assert len(chosen) == len(set(chosen.tolist())) == min(count, len(clients))
    assert set(chosen.tolist()) <= clients
    again = UNIFORM.select(offered(candidates), count, Key.root(seed))
    assert again.tolist() == chosen.tolist()


def test_every_candidate_is_as_likely_whatever_its_samples() -> None:
    candidates, sizes = np.array([3, 5, 8, 9, 20]), np.array([1, 1, 1, 1, 1000])
    times = Counter[int]()
    for seed in range(2000):
        times.update(UNIFORM.select(offered(candidates, sizes), 2, Key.root(seed)).tolist())
    # 2000 * 2 / 5 each; the standard deviation is 22.
    assert sorted(times) == candidates.tolist()
    assert all(abs(count - 800) < 100 for count in times.values())
