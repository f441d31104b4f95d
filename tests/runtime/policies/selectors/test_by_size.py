"""Selection in proportion to data size."""

from __future__ import annotations

import numpy as np

from fedsim.config import Config
from fedsim.params import Array
from fedsim.rng import Key
from fedsim.runtime.policies.selectors.base import Candidates
from fedsim.runtime.policies.selectors.by_size import PLUGIN

CANDIDATES = np.array([2, 5, 6, 9])


def offered(clients: Array, sizes: Array) -> Candidates:
    return Candidates(clients, clients[:0], None, 0.0, lambda _: sizes)


def draw(sizes: list[int], count: int, number: int = 0) -> list[int]:
    chosen = PLUGIN(Config()).select(offered(CANDIDATES, np.array(sizes)), count, Key.root(0).child(number))
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
    assert len(PLUGIN(Config()).select(offered(empty, empty), 3, Key.root(0))) == 0
