"""Sets of numbers: their length, and every way to spoil them."""

from __future__ import annotations

from math import comb, log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.errors import DecodeError
from fedsim.wire.codecs import index_sets


@given(st.integers(1, 300).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1)))))
def test_what_is_encoded_is_decoded(case: tuple[int, set[int]]) -> None:
    n, numbers = case
    indices = np.array(sorted(numbers), np.int64)
    packed = index_sets.encode(indices, n)
    assert packed.nbytes == index_sets.num_bytes(n, len(indices))
    assert index_sets.decode(packed, n, len(indices)).tolist() == indices.tolist()


def test_a_hundredth_of_the_cnn() -> None:
    assert index_sets.num_bytes(1_663_370, 16_634) == 17_804


@pytest.mark.parametrize("share", [0.001, 0.01, 0.1])
def test_it_is_near_the_entropy(share: float) -> None:
    n = 100_000
    k = int(share * n)
    assert 1.0 <= 8 * index_sets.num_bytes(n, k) / log2(comb(n, k)) < 1.13


def test_where_most_are_chosen_it_is_a_bit_each() -> None:
    assert index_sets.num_bytes(800, 700) == 100


@given(st.binary(min_size=6, max_size=6))
def test_any_bytes_are_a_set_or_an_error(data: bytes) -> None:
    n, k = 64, 8
    assert index_sets.num_bytes(n, k) == 6
    try:
        indices = index_sets.decode(np.frombuffer(data, np.uint8), n, k)
    except DecodeError:
        return
    assert index_sets.encode(indices, n).tobytes() == data
