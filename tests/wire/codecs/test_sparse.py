"""Some of the values: which, and how they travel."""

from __future__ import annotations

import numpy as np
import pytest

from fedsim.rng import Key
from fedsim.wire.codecs import index_sets
from fedsim.wire.codecs.sparse import RandK, ShareConfig, TopK, _drawn
from tests.wire.codecs.conftest import Make, drawn, floats


def test_the_largest_by_absolute_value_over_all_arrays(make: Make) -> None:
    chain = make({"name": "topk", "params": {"share": 0.4}})
    tree = {"a": floats(1, -9, 0), "b": floats(4, -0.5)}
    decoded = chain.decode(chain.encode(tree, Key.root(0)).tree).tree
    assert decoded["a"].tolist() == [0, -9, 0]
    assert decoded["b"].tolist() == [4, 0]


def test_of_equal_values_the_first(make: Make) -> None:
    chain = make({"name": "topk", "params": {"share": 0.5}})
    decoded = chain.decode(chain.encode({"w": floats(1, -1, 1, -1)}, Key.root(0)).tree).tree
    assert decoded["w"].tolist() == [1, -1, 0, 0]


@pytest.mark.parametrize(
    ("n", "share", "k"), [(1, 0.01, 1), (10, 0.01, 1), (150, 0.01, 2), (149, 0.01, 1), (10, 1.0, 10)]
)
def test_how_many_are_sent(n: int, share: float, k: int) -> None:
    assert TopK(ShareConfig(share=share)).kept(n) == RandK(ShareConfig(share=share)).kept(n) == k


def test_nothing_of_nothing(make: Make) -> None:
    for name in ("topk", "randk"):
        coded = make(name).encode({"w": np.empty((0, 3), np.float32)}, Key.root(0)).tree
        assert [*coded] == ["w"]


def test_many_values_by_the_formula() -> None:
    n, codec = 10**8, TopK(ShareConfig(share=0.01))
    layout = codec.coded(((10**4, 10**4),))
    assert layout.values == ((10**6,),)
    assert layout.segments[0].nbytes == -(-(10**6 * 6 + 10**6 + (n >> 6) + 1) // 8)


def test_dimensions_beyond_two_to_the_fifteenth(make: Make) -> None:
    values = np.zeros((1, 70_000), np.float32)
    values[0, 69_999], values[0, 40_000] = 3, -4
    chain = make({"name": "topk", "params": {"share": 2 / 70_000}})
    assert np.array_equal(chain.decode(chain.encode({"w": values}, Key.root(0)).tree).tree["w"], values)


def test_a_random_mask_is_scaled_unless_the_rest_is_sent_later(make: Make) -> None:
    values, half = {"w": np.ones(10, np.float32)}, {"name": "randk", "params": {"share": 0.5}}
    for feedback, size in ((False, 2.0), (True, 1.0)):
        chain = make(half, feedback=feedback)
        decoded = chain.decode(chain.encode(values, Key.root(0)).tree).tree["w"]
        assert sorted(decoded.tolist()) == [0.0] * 5 + [size] * 5


@pytest.mark.parametrize(("n", "k"), [(1, 1), (10, 3), (10, 9), (10, 10), (1000, 500)])
def test_drawn_places_are_different_and_ascending(n: int, k: int) -> None:
    for seed in range(20):
        places = _drawn(seed, n, k)
        assert len(places) == k
        assert (np.diff(places) > 0).all()
        assert places[0] >= 0
        assert places[-1] < n


def test_each_place_is_drawn_as_often(make: Make) -> None:
    counts = sum(np.bincount(_drawn(seed, 8, 3), minlength=8) for seed in range(4000))
    assert np.abs(counts / 4000 - 3 / 8).max() < 0.03


def test_a_real_tree(make: Make) -> None:
    chain, values = make({"name": "topk", "params": {"share": 0.1}}), drawn(40, 25)
    decoded = chain.decode(chain.encode({"w": values}, Key.root(0)).tree).tree["w"]
    assert np.count_nonzero(decoded) == 100
    assert np.abs(decoded[decoded != 0]).min() >= np.abs(values[decoded == 0]).max()
    assert index_sets.num_bytes(1000, 100) == -(-(100 * 3 + 100 + 125 + 1) // 8)
