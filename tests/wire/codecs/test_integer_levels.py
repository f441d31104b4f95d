"""Integers of 8 and 4 bits, by hand and in the mean."""

from __future__ import annotations

import numpy as np
import pytest

from fedsim.errors import DecodeError
from fedsim.params import Array, Tree
from fedsim.rng import Key
from tests.wire.codecs.conftest import Make, drawn, floats


def test_levels_are_multiples_of_the_largest_value_over_127(make: Make) -> None:
    coded = make("int8").encode({"w": floats(127, -127, 0, 64)}, Key.root(0)).tree
    assert (coded["+0"].tolist(), coded["+1"].tolist()) == ([127, -127, 0, 64], [1.0])


def test_four_bits_are_two_in_a_byte_and_shifted_by_8(make: Make) -> None:
    coded = make("int4").encode({"w": floats(7, -7, 0)}, Key.root(0)).tree
    assert (coded["+0"].tolist(), coded["+1"].tolist()) == ([15 | 1 << 4, 8], [1.0])


@pytest.mark.parametrize("size", [0, 1, 255, 256, 257, 1000])
@pytest.mark.parametrize(("name", "bits"), [("int8", 8), ("int4", 4)])
def test_bytes_are_the_formula(make: Make, name: str, bits: int, size: int) -> None:
    coded = make(name).encode({"w": drawn(size)}, Key.root(0)).tree
    assert coded["+0"].nbytes == -(-size * bits // 8)
    assert coded["+1"].nbytes == 4 * -(-size // 256)


def test_each_chunk_has_a_scale_and_a_row_if_wanted(make: Make) -> None:
    values = np.concatenate([np.full(256, 127, np.float32), np.full(256, 254, np.float32)])
    assert make("int8").encode({"w": values}, Key.root(0)).tree["+1"].tolist() == [1, 2]
    rows = make({"name": "int8", "params": {"rows": True}}).encode({"w": values.reshape(128, 4)}, Key.root(0))
    assert rows.tree["+1"].tolist() == [1] * 64 + [2] * 64


def test_zeros_and_what_is_not_finite(make: Make) -> None:
    values = np.zeros(512, np.float32)
    values[300] = np.inf
    chain = make("int8")
    decoded = chain.decode(chain.encode({"w": values}, Key.root(0)).tree)["w"]
    assert not decoded[:256].any()
    assert np.isnan(decoded[256:]).all()


def test_the_smallest_numbers_do_not_divide_by_zero(make: Make) -> None:
    chain, values = make("int8"), np.full(10, 1e-45, np.float32)
    assert np.abs(chain.decode(chain.encode({"w": values}, Key.root(0)).tree)["w"]).max() < 1e-40


def coded(codes: Array, scale: float, size: int) -> Tree:
    return {"w": np.empty((0, size), np.float32), "+0": codes, "+1": floats(scale)}


def test_codes_that_no_encoder_gives_are_refused(make: Make) -> None:
    for name, codes in (("int8", np.array([-128, 0], np.int8)), ("int4", np.array([0], np.uint8))):
        with pytest.raises(DecodeError, match="a code of"):
            make(name).decode(coded(codes, 1, 2))
    with pytest.raises(DecodeError, match="behind the last"):
        make("int4").decode(coded(np.array([0x11], np.uint8), 1, 1))


@pytest.mark.parametrize("scale", [-1.0, np.inf])
def test_a_scale_that_no_encoder_gives_is_refused(make: Make, scale: float) -> None:
    with pytest.raises(DecodeError, match="negative or infinite"):
        make("int8").decode(coded(np.array([1], np.int8), scale, 1))
