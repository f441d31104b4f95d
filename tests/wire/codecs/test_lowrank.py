"""Products of thin matrices."""

from __future__ import annotations

import numpy as np
import pytest

from fedsim.rng import Key
from tests.wire.codecs.conftest import Make, drawn, num_bytes


def test_a_matrix_of_low_rank_is_kept(make: Make) -> None:
    matrix = drawn(30, 2) @ drawn(2, 20, seed=1)
    chain = make({"name": "lowrank", "params": {"rank": 2}})
    coded = chain.encode({"w": matrix}, Key.root(0)).tree
    assert num_bytes(coded) == 4 * 2 * (30 + 20)
    assert np.allclose(chain.decode(coded).tree["w"], matrix, atol=1e-4)


@pytest.mark.parametrize("rank", [2, 4])
def test_a_matrix_of_a_lower_rank_than_asked_for_is_kept(make: Make, rank: int) -> None:
    matrix = np.outer(np.arange(1, 65), np.arange(1, 101)).astype(np.float32)
    chain = make({"name": "lowrank", "params": {"rank": rank}})
    for seed in range(20):
        decoded = chain.decode(chain.encode({"w": matrix}, Key.root(seed)).tree).tree["w"]
        assert np.allclose(decoded, matrix, rtol=1e-4)


def test_other_arrays_go_on_as_they_are(make: Make) -> None:
    tree = {"b": drawn(9), "tiny": drawn(2, 2)}
    chain = make({"name": "lowrank", "params": {"rank": 1}})
    decoded = chain.decode(chain.encode(tree, Key.root(0)).tree).tree
    assert all(np.array_equal(decoded[name], tree[name]) for name in tree)


def test_kernels_are_matrices_with_a_row_for_each_output(make: Make) -> None:
    coded = (
        make({"name": "lowrank", "params": {"rank": 1}}).encode({"w": drawn(8, 3, 5, 5)}, Key.root(0)).tree
    )
    assert (coded["+0"].shape, coded["+1"].shape) == ((8, 1), (75, 1))


def test_a_matrix_of_zeros(make: Make) -> None:
    chain = make("lowrank")
    assert (
        not chain.decode(chain.encode({"w": np.zeros((9, 9), np.float32)}, Key.root(0)).tree).tree["w"].any()
    )
