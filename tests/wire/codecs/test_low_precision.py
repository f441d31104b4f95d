"""Numbers of 16, 8 and 4 bits: rounding, saturation, and what is not finite."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedsim.errors import DecodeError
from fedsim.params import Array, Tree
from fedsim.rng import Key
from tests.wire.codecs.conftest import Make, drawn, floats


def test_float16_saturates_and_counts(make: Make) -> None:
    chain = make("float16")
    coded = chain.encode({"w": floats(1, 1e5, -1e5, 65504)}, Key.root(0)).tree
    assert chain.decode(coded).tree["w"].tolist() == [1, 65504, -65504, 65504]
    assert chain.decode(coded).num_saturated == 3


@pytest.mark.parametrize(("name", "large"), [("float16", 1e5), ("bfloat16", 3.4e38)])
def test_values_beyond_the_range_are_counted_at_both_ends(make: Make, name: str, large: float) -> None:
    pytest.importorskip("zstandard")
    for chain in (make(name), make(name, "zstd")):
        encoded = chain.encode({"w": floats(1, large, -large)}, Key.root(0))
        assert encoded.num_saturated == chain.decode(encoded.tree).num_saturated == 2


def test_bfloat16_rounds_as_torch_does(make: Make) -> None:
    chain, values = make("bfloat16"), drawn(1000) * 1e3
    decoded = chain.decode(chain.encode({"w": values}, Key.root(0)).tree).tree["w"]
    assert np.array_equal(decoded, torch.from_numpy(values).to(torch.bfloat16).float().numpy())


def test_bfloat16_never_rounds_to_an_infinity(make: Make) -> None:
    chain, largest = make("bfloat16"), float(np.finfo(np.float32).max)
    decoded = chain.decode(chain.encode({"w": floats(largest, -largest)}, Key.root(0)).tree).tree["w"]
    assert np.isfinite(decoded).all()
    assert decoded.tolist() == [decoded[0], -decoded[0]]


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_an_infinity_from_a_peer_is_no_number(make: Make, name: str) -> None:
    bits = np.array([0x7C00 if name == "float16" else 0x7F80], "<u2")
    segment = bits.view("<f2") if name == "float16" else bits
    decoded = make(name).decode({"w": np.empty((0, 1), np.float32), "+0": segment}).tree
    assert np.isnan(decoded["w"]).all()


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
    decoded = chain.decode(chain.encode({"w": values}, Key.root(0)).tree).tree["w"]
    assert not decoded[:256].any()
    assert np.isnan(decoded[256:]).all()


def test_the_smallest_numbers_do_not_divide_by_zero(make: Make) -> None:
    chain, values = make("int8"), np.full(10, 1e-45, np.float32)
    assert np.abs(chain.decode(chain.encode({"w": values}, Key.root(0)).tree).tree["w"]).max() < 1e-40


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
