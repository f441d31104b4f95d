"""Signs and ternary values, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from fedsim.errors import DecodeError
from fedsim.params import Tree
from fedsim.rng import Key
from tests.wire.codecs.conftest import Make, drawn, floats


def test_a_sign_has_the_mean_absolute_value(make: Make) -> None:
    chain = make("sign")
    coded = chain.encode({"w": floats(1, -2, 0, 5)}, Key.root(0)).tree
    assert (coded["+0"].tolist(), coded["+1"].tolist()) == ([0b0010], [2.0])
    assert chain.decode(coded).tree["w"].tolist() == [2, -2, 2, 2]


def test_ternary_values_have_the_largest_absolute_value(make: Make) -> None:
    chain = make("ternary")
    coded = chain.encode({"w": floats(3, -3, 0, 3, 0, -3)}, Key.root(0)).tree
    # 0, 1, 2 for -3, 0, 3, the first being the lowest; places behind the last are 1.
    assert coded["+0"].tolist() == [2 + 0 * 3 + 1 * 9 + 2 * 27 + 1 * 81, 0 + 3 + 9 + 27 + 81]
    assert chain.decode(coded).tree["w"].tolist() == [3, -3, 0, 3, 0, -3]


@pytest.mark.parametrize("size", [0, 1, 5, 6, 8, 9, 1000])
def test_bytes_are_the_formula(make: Make, size: int) -> None:
    for name, count in (("sign", -(-size // 8)), ("ternary", -(-size // 5))):
        coded = make(name).encode({"w": drawn(size)}, Key.root(0)).tree
        assert (coded["+0"].nbytes, coded["+1"].nbytes) == (count, 4)


def test_a_layer_of_zeros_stays_one(make: Make) -> None:
    for name in ("sign", "ternary"):
        chain = make(name)
        assert not chain.decode(chain.encode({"w": floats(0, 0, 0)}, Key.root(0)).tree).tree["w"].any()


@pytest.mark.parametrize(("name", "byte"), [("sign", 0b1000), ("ternary", 243), ("ternary", 0)])
def test_bits_behind_the_last_are_refused(make: Make, name: str, byte: int) -> None:
    coded: Tree = {"w": np.empty((0, 3), np.float32), "+0": np.array([byte], np.uint8), "+1": floats(1)}
    with pytest.raises(DecodeError):
        make(name).decode(coded)
