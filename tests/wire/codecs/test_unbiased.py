"""The expectation of what unbiased codecs decode is what was encoded."""

from __future__ import annotations

from math import sqrt
from statistics import NormalDist

import numpy as np
import pytest

from fedsim.rng import Key
from fedsim.wire.codecs.choices import CODEC
from tests.wire.codecs.conftest import Make, floats

DRAWS = 10_000
VALUES = floats(-1.0, -0.3, 0.0, 1e-3, 0.11, 0.5, 0.77, 1.0)


@pytest.mark.parametrize("name", ["int8", "int4", "ternary", "randk"])
def test_the_mean_of_many_draws(make: Make, name: str) -> None:
    codec = {"name": name, "params": {"share": 0.375}} if name == "randk" else name
    chain, zero = make("delta", codec), {"w": np.zeros_like(VALUES)}
    draws = np.array(
        [
            chain.decode(chain.encode({"w": VALUES}, Key.root(seed), zero).tree, zero).tree["w"]
            for seed in range(DRAWS)
        ]
    )
    # Four standard errors of one mean, of all eight together (Bonferroni).
    most = NormalDist().inv_cdf(1 - (1 - NormalDist().cdf(4)) / len(VALUES))
    errors = np.abs(draws.mean(axis=0, dtype=np.float64) - VALUES)
    assert (errors <= most * draws.std(axis=0, ddof=1) / sqrt(DRAWS) + 1e-7).all()


@pytest.mark.parametrize("name", ["topk", "sign", "lowrank"])
def test_the_others_do_not_say_that_they_are(name: str) -> None:
    assert not CODEC.find(name).about.unbiased
