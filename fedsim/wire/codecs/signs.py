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
    ArrayCodec,
    Shape,
    checked_scales,
    require_zero_bits,
    total,
)

_TRITS = (np.arange(3**5)[:, None] // 3 ** np.arange(5) % 3).astype(U8)
"""The five base-3 digits of each byte, the lowest first."""
_SCALE = ArrayForm(F32, (1,))


class Sign(ArrayCodec[Config]):
    """1 bit a value: its sign, times the mean absolute value of the array (EF-signSGD).

    The sign of 0 is plus. Karimireddy, Rebjock, Stich, Jaggi: Error Feedback Fixes SignSGD and other Gradient
    Compression Schemes, ICML 2019.
    """

    about = About(kind="changes of models")
    flops_per_value = (3.0, 1.0)

    def forms(self, shape: Shape) -> tuple[ArrayForm, ...]:
        """Return bits and a scale."""
        return ArrayForm(U8, (-(-prod(shape) // 8),)), _SCALE

    def encode_array(self, array: Array, generator: np.random.Generator) -> tuple[Array, ...]:
        """Take the signs."""
        row = array.reshape(-1)
        scale = total(np.abs(row, dtype=np.float64)) / max(1, row.size)
        return np.packbits(row < 0, bitorder="little"), _finite(scale)

    def decode_array(self, segments: Sequence[Array], shape: Shape) -> Array:
        """Multiply signs by the scale."""
        packed, scale = segments
        require_zero_bits(packed, prod(shape))
        is_negative = np.unpackbits(packed, count=prod(shape), bitorder="little").astype(bool)
        magnitude = checked_scales(scale)[0]
        row: Array = np.where(is_negative, -magnitude, magnitude).astype(F32)
        return row.reshape(shape)


class Ternary(ArrayCodec[Config]):
    """1.6 bits a value: -s, 0 or s at random; unbiased (TernGrad).

    With the largest absolute value s of an array, a value x becomes sign(x) s with the probability
    abs(x) / s, and 0 otherwise. Five values are a byte. Wen et al.: TernGrad: Ternary Gradients to Reduce
    Communication in Distributed Deep Learning, NeurIPS 2017.
    """

    about = About(kind="changes of models", unbiased=True)
    flops_per_value = (6.0, 3.0)

    def forms(self, shape: Shape) -> tuple[ArrayForm, ...]:
        """Return bytes and a scale."""
        return ArrayForm(U8, (-(-prod(shape) // 5),)), _SCALE

    def encode_array(self, array: Array, generator: np.random.Generator) -> tuple[Array, ...]:
        """Draw for each value."""
        row = array.reshape(-1)
        scale = np.abs(row).max(initial=0)
        is_drawn = generator.random(row.size, F32) * scale < np.abs(row)
        trits = np.full(5 * -(-row.size // 5), 1, U8)
        if np.isfinite(scale):
            trits[: row.size] += is_drawn
            trits[: row.size][is_drawn & (row < 0)] = 0
        first, *others = trits.reshape(-1, 5).T
        for power, digits in enumerate(others, 1):
            first = first + U8.type(3**power) * digits
        return np.ascontiguousarray(first), _finite(scale)

    def decode_array(self, segments: Sequence[Array], shape: Shape) -> Array:
        """Multiply by the scale."""
        (packed, scale), count = segments, prod(shape)
        is_known = packed.max(initial=0) < len(_TRITS)
        trits = _TRITS[packed].reshape(-1) if is_known else packed
        if not is_known or (trits[count:] != 1).any():
            raise DecodeError("five values of ternary are a byte from 0 to 242, and 1 behind the last")
        row: Array = (trits[:count].astype(F32) - F32.type(1)) * checked_scales(scale)[0]
        return row.reshape(shape)


def _finite(scale: float) -> Array:
    """Return a scale as a segment, NaN where it is not finite."""
    return np.array([scale if np.isfinite(scale) else np.nan], F32)


PLUGINS = {"sign": Sign, "ternary": Ternary}
