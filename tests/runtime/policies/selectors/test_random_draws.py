from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedsim.config import Config
from fedsim.params import Array
from fedsim.rng import Key
from fedsim.runtime.policies.selectors.base import Candidates
from fedsim.runtime.policies.selectors.random_draws import BySize, Uniform

UNIFORM = Uniform(Config())


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


CANDIDATES = np.array([2, 5, 6, 9])


def draw(sizes: list[int], count: int, number: int = 0) -> list[int]:
    chosen = BySize(Config()).select(offered(CANDIDATES, np.array(sizes)), count, Key.root(0).child(number))
    return [int(client) for client in chosen]


def test_the_first_draw_is_in_proportion_to_size() -> None:
    counts = np.bincount([draw([1, 2, 3, 4], 1, number)[0] for number in range(4000)], minlength=10)
    expected = 4000 * np.array([0.1, 0.2, 0.3, 0.4])
    assert np.all(np.abs(counts[CANDIDATES] - expected) < 4 * np.sqrt(expected))


def test_nobody_is_drawn_twice_and_all_are_if_all_are_wanted() -> None:
    assert sorted(draw([1, 100, 1, 100], 4)) == CANDIDATES.tolist()
    assert sorted(draw([1, 1, 1, 1], 9)) == CANDIDATES.tolist()
    assert len(set(draw([1, 100, 1, 100], 3))) == 3


def test_a_draw_is_a_function_of_its_key() -> None:
    assert draw([1, 2, 3, 4], 2) == draw([1, 2, 3, 4], 2)
    assert len({tuple(draw([1, 2, 3, 4], 2, number)) for number in range(50)}) > 3


def test_nobody_is_drawn_of_nobody() -> None:
    empty = np.empty(0, np.int64)
    assert len(BySize(Config()).select(offered(empty, empty), 3, Key.root(0))) == 0
