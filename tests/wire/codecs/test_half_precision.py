"""Sixteen bits: rounding, saturation and what is not finite."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedsim.rng import Key
from tests.wire.codecs.conftest import Make, drawn, floats


def test_float16_saturates_and_counts(make: Make) -> None:
    chain = make("float16")
    coded = chain.encode({"w": floats(1, 1e5, -1e5, 65504)}, Key.root(0)).tree
    assert chain.decode(coded)["w"].tolist() == [1, 65504, -65504, 65504]
    assert chain.num_saturated(coded) == 3
    assert make("bfloat16").num_saturated(make("bfloat16").encode({"w": floats(1)}, Key.root(0)).tree) == 0


def test_bfloat16_rounds_as_torch_does(make: Make) -> None:
    chain, values = make("bfloat16"), drawn(1000) * 1e3
    decoded = chain.decode(chain.encode({"w": values}, Key.root(0)).tree)["w"]
    assert np.array_equal(decoded, torch.from_numpy(values).to(torch.bfloat16).float().numpy())


def test_bfloat16_never_rounds_to_an_infinity(make: Make) -> None:
    chain, largest = make("bfloat16"), float(np.finfo(np.float32).max)
    decoded = chain.decode(chain.encode({"w": floats(largest, -largest)}, Key.root(0)).tree)["w"]
    assert np.isfinite(decoded).all()
    assert decoded.tolist() == [decoded[0], -decoded[0]]


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_an_infinity_from_a_peer_is_no_number(make: Make, name: str) -> None:
    bits = np.array([0x7C00 if name == "float16" else 0x7F80], "<u2")
    segment = bits.view("<f2") if name == "float16" else bits
    decoded = make(name).decode({"w": np.empty((0, 1), np.float32), "+0": segment})
    assert np.isnan(decoded["w"]).all()
