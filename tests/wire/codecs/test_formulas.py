"""The bytes of each codec of a fixed length are its formula, on real nets and at the edges."""

from __future__ import annotations

from collections.abc import Callable
from math import floor, log2, prod
from typing import Any

import numpy as np
import pytest

from fedsim.params import ArrayForm, Form
from fedsim.wire.codecs.base import F32
from tests.wire.codecs.conftest import Make

Shape = tuple[int, ...]
MLP: list[Shape] = [(64, 64), (64,), (10, 64), (10,)]
CNN: list[Shape] = [(32, 1, 5, 5), (32,), (64, 32, 5, 5), (64,), (512, 3136), (512,), (10, 512), (10,)]
NETS: dict[str, list[Shape]] = {
    "mlp": MLP,
    "cnn": CNN,
    "empty": [(0, 3)],
    "one value": [(1,)],
    "a chunk": [(256,)],
    "no multiple": [(257,), (13,)],
    "1e8": [(10_000, 10_000)],
}


def ceil(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)


def each(of: Callable[[int], int]) -> Callable[[list[Shape]], int]:
    """Return a formula that is the sum over arrays."""
    return lambda shapes: sum(of(prod(shape)) for shape in shapes)


def top(share: float) -> Callable[[list[Shape]], int]:
    def num_bytes(shapes: list[Shape]) -> int:
        n = sum(map(prod, shapes))
        if not n:
            return 0
        k = min(n, max(1, floor(share * n + 0.5)))
        low = floor(log2(n / k))
        return 4 * k + ceil(min(n, k * low + k + floor(n / 2**low) + 1), 8)

    return num_bytes


def random(share: float) -> Callable[[list[Shape]], int]:
    def num_bytes(shapes: list[Shape]) -> int:
        n = sum(map(prod, shapes))
        return 4 * min(n, max(1, floor(share * n + 0.5))) + 8 if n else 0

    return num_bytes


def thin(rank: int) -> Callable[[list[Shape]], int]:
    def num_bytes(shapes: list[Shape]) -> int:
        total = 0
        for shape in shapes:
            m, n = shape[0], prod(shape[1:])
            pays = len(shape) > 1 and rank * (m + n) < m * n
            total += 4 * (rank * (m + n) if pays else prod(shape))
        return total

    return num_bytes


FORMULAS: dict[str, tuple[list[Any], Callable[[list[Shape]], int]]] = {
    "float16": (["float16"], each(lambda n: 2 * n)),
    "bfloat16": (["bfloat16"], each(lambda n: 2 * n)),
    "int8": (["int8"], each(lambda n: n + 4 * ceil(n, 256))),
    "int4": (["int4"], each(lambda n: ceil(n, 2) + 4 * ceil(n, 256))),
    "ternary": (["ternary"], each(lambda n: ceil(n, 5) + 4)),
    "sign": (["sign"], each(lambda n: ceil(n, 8) + 4)),
    "topk": ([{"name": "topk", "params": {"share": 0.01}}], top(0.01)),
    "topk, half": ([{"name": "topk", "params": {"share": 0.5}}], top(0.5)),
    "randk": ([{"name": "randk", "params": {"share": 0.05}}], random(0.05)),
    "lowrank": ([{"name": "lowrank", "params": {"rank": 2}}], thin(2)),
    "delta": (["delta"], each(lambda n: 4 * n)),
}


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("name", FORMULAS)
def test_bytes_are_the_formula(make: Make, name: str, net: str) -> None:
    codecs, formula = FORMULAS[name]
    form = Form.of({str(number): ArrayForm(F32, shape) for number, shape in enumerate(NETS[net])})
    assert sum(array.nbytes for array in make(*codecs).form(form).values()) == formula(NETS[net])


def test_int8_takes_254_of_1000_bytes_of_the_cnn() -> None:
    _, formula = FORMULAS["int8"]
    assert sum(map(prod, CNN)) == 1_663_370
    assert formula(CNN) / (4 * 1_663_370) == pytest.approx(0.254, abs=5e-4)
    assert np.isclose(formula(MLP) / (4 * sum(map(prod, MLP))), 0.255, atol=5e-3)
