"""Signs with one magnitude for each array."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from fedsim.config import Config
from fedsim.errors import DecodeError
from fedsim.params import Array, ArrayForm
from fedsim.wire.codecs.base import (
    F32,
    U8,
    About,
    Codec,
    Coded,
    Coding,
    Layout,
    Shapes,
    checked_scales,
    require_zero_bits,
    total,
)

_POWERS = np.array([1, 3, 9, 27, 81], U8)
_SCALE = ArrayForm(F32, (1,))


class Sign(Codec[Config]):
    """1 bit a value: its sign, times the mean absolute value of the array (EF-signSGD).

    Karimireddy, Rebjock, Stich, Jaggi: Error Feedback Fixes SignSGD and other Gradient Compression Schemes,
    ICML 2019.
    """

    about = About(kind="changes of models")

    flops_per_value = (3.0, 1.0)

    def coded(self, shapes: Shapes) -> Layout:
        """Return bits and one scale of each array."""
        forms = [(ArrayForm(U8, (-(-prod(shape) // 8),)), _SCALE) for shape in shapes]
        return Layout((), tuple(form for pair in forms for form in pair))

    def encode(self, values: Sequence[Array], coding: Coding) -> Coded:
        """Take the signs; that of 0 is plus."""
        segments = list[Array]()
        for array in values:
            row = array.reshape(-1)
            scale = total(np.abs(row, dtype=np.float64)) / max(1, row.size)
            scale = scale if np.isfinite(scale) else np.nan
            segments += np.packbits(row < 0, bitorder="little"), np.array([scale], F32)
        return Coded((), segments)

    def decode(self, coded: Coded, shapes: Shapes, coding: Coding) -> list[Array]:
        """Multiply signs by the scale."""
        arrays = []
        for shape, packed, scale in zip(shapes, coded.segments[::2], coded.segments[1::2], strict=True):
            require_zero_bits(packed, prod(shape))
            is_negative = np.unpackbits(packed, count=prod(shape), bitorder="little").astype(bool)
            magnitude = checked_scales(scale)[0]
            arrays.append(np.where(is_negative, -magnitude, magnitude).astype(F32).reshape(shape))
        return arrays


class Ternary(Codec[Config]):
    """1.6 bits a value: -s, 0 or s at random; unbiased (TernGrad).

    With the largest absolute value s of an array, a value x becomes sign(x) s with the probability
    abs(x) / s, and 0 otherwise. Five values are a byte. Wen et al.: TernGrad: Ternary Gradients to Reduce
    Communication in Distributed Deep Learning, NeurIPS 2017.
    """

    about = About(kind="changes of models", unbiased=True)

    flops_per_value = (6.0, 3.0)

    def coded(self, shapes: Shapes) -> Layout:
        """Return bytes and one scale of each array."""
        forms = [(ArrayForm(U8, (-(-prod(shape) // 5),)), _SCALE) for shape in shapes]
        return Layout((), tuple(form for pair in forms for form in pair))

    def encode(self, values: Sequence[Array], coding: Coding) -> Coded:
        """Draw for each value."""
        generator, segments = coding.generator("ternary"), list[Array]()
        for array in values:
            magnitudes = np.abs(array.reshape(-1))
            scale = magnitudes.max(initial=0)
            is_drawn = generator.random(array.size, F32) * scale < magnitudes
            trits = np.full(5 * -(-array.size // 5), 1, U8)
            if np.isfinite(scale):
                trits[: array.size] += is_drawn
                trits[: array.size][is_drawn & (array.reshape(-1) < 0)] = 0
            packed = (trits.reshape(-1, 5) * _POWERS).sum(axis=1, dtype=U8)
            segments += packed, np.array([scale if np.isfinite(scale) else np.nan], F32)
        return Coded((), segments)

    def decode(self, coded: Coded, shapes: Shapes, coding: Coding) -> list[Array]:
        """Multiply by the scale."""
        arrays = []
        for shape, packed, scale in zip(shapes, coded.segments[::2], coded.segments[1::2], strict=True):
            trits = packed[:, None] // _POWERS % 3
            count = prod(shape)
            if (packed >= 243).any() or (trits.reshape(-1)[count:] != 1).any():
                raise DecodeError("five values of ternary are a byte from 0 to 242, and 1 behind the last")
            levels = trits.reshape(-1)[:count].astype(F32) - F32.type(1)
            with np.errstate(all="ignore"):
                arrays.append((levels * checked_scales(scale)[0]).reshape(shape))
        return arrays


PLUGINS = {"sign": Sign, "ternary": Ternary}
