"""Numbers of 16, 8 and 4 bits.

Integers have one scale for each chunk of 256 values, and are rounded at random (QSGD). The scale s of a chunk
is its largest absolute value over the highest level L (127 or 7). A value x becomes floor(x / s + u), where u
is uniform in [0, 1), so the expectation of what is decoded is x. This is the quantiser of Alistarh et al.,
QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding, NeurIPS 2017, by the largest value
instead of the norm, with L levels.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from math import prod
from typing import ClassVar

import numpy as np

from fedsim.config import Config
from fedsim.errors import DecodeError
from fedsim.params import Array, ArrayForm
from fedsim.wire.codecs.base import F32, I8, U8, About, ArrayCodec, Shape, checked_scales

CHUNK = 256

_F16, _U16 = np.dtype("<f2"), np.dtype("<u2")
_LARGEST_FLOAT16 = np.finfo(np.float16).max
_LARGEST_BFLOAT16, _NAN_BFLOAT16, _MAGNITUDE = np.array([0x7F7F, 0x7FC0, 0x7FFF], _U16)


class Float16(ArrayCodec[Config]):
    """16 bits a value: half precision; values beyond 65,504 become 65,504."""

    about = About(kind="any array")
    flops_per_value = (2.0, 1.0)

    def forms(self, shape: Shape) -> tuple[ArrayForm, ...]:
        """Return an array of the same shape."""
        return (ArrayForm(_F16, shape),)

    def encode_array(self, array: Array, generator: np.random.Generator) -> tuple[Array, ...]:
        """Round to the nearest."""
        finite = np.where(np.isfinite(array), array, np.nan)
        return (np.clip(finite, -_LARGEST_FLOAT16, _LARGEST_FLOAT16).astype(_F16),)

    def decode_array(self, segments: Sequence[Array], shape: Shape) -> Array:
        """Widen."""
        return _without_infinities(segments[0].astype(F32))

    def num_saturated(self, segments: Sequence[Array]) -> int:
        """Return how many values are the largest number."""
        return sum(int(np.count_nonzero(np.abs(one) == _LARGEST_FLOAT16)) for one in segments)


class BFloat16(ArrayCodec[Config]):
    """16 bits a value: the range of float32 with 8 bits of precision."""

    about = About(kind="any array")
    flops_per_value = (2.0, 1.0)

    def forms(self, shape: Shape) -> tuple[ArrayForm, ...]:
        """Return an array of the same shape: the upper halves of float32."""
        return (ArrayForm(_U16, shape),)

    def encode_array(self, array: Array, generator: np.random.Generator) -> tuple[Array, ...]:
        """Round to the nearest, ties to even, and never to an infinity."""
        whole = array.view(np.uint32)
        rounded = (whole + (np.uint32(0x7FFF) + (whole >> 16 & 1)) >> 16).astype(_U16)
        sign = (whole >> 16).astype(_U16) & ~_MAGNITUDE
        largest = np.minimum(rounded & _MAGNITUDE, _LARGEST_BFLOAT16) | sign
        return (np.where(np.isfinite(array), largest, _NAN_BFLOAT16),)

    def decode_array(self, segments: Sequence[Array], shape: Shape) -> Array:
        """Append sixteen zeros."""
        return _without_infinities((segments[0].astype(np.uint32) << 16).view(F32))

    def num_saturated(self, segments: Sequence[Array]) -> int:
        """Return how many values are the largest number."""
        return sum(int(np.count_nonzero((one & _MAGNITUDE) == _LARGEST_BFLOAT16)) for one in segments)


class LevelsConfig(Config):
    """What has a scale of its own."""

    rows: bool = False
    """Whether each row of an array, such as a sample's logits, has a scale, instead of each chunk of 256."""


class _Levels(ArrayCodec[LevelsConfig]):
    flops_per_value = (6.0, 2.0)
    highest: ClassVar[int]

    @abstractmethod
    def _code_form(self, count: int) -> ArrayForm:
        """Return the form of ``count`` codes."""

    @abstractmethod
    def _packed(self, levels: Array) -> Array:
        """Return int8 levels as they travel."""

    @abstractmethod
    def _unpacked(self, codes: Array, count: int) -> Array:
        """Return the int8 levels; a DecodeError where no encoder gives them."""

    def forms(self, shape: Shape) -> tuple[ArrayForm, ...]:
        """Return the forms of codes and scales."""
        return self._code_form(prod(shape)), ArrayForm(F32, (self._chunks(shape)[0],))

    def encode_array(self, array: Array, generator: np.random.Generator) -> tuple[Array, ...]:
        """Round each value to one of the two next levels, at random."""
        chunks, size = self._chunks(array.shape)
        table = _in_chunks(array.reshape(-1), chunks, size)
        scales = _largest(table) / F32.type(self.highest)
        table /= scales[:, None]  # a chunk of zeros becomes NaN
        table += generator.random(table.shape, F32)
        np.floor(table, out=table)
        np.fmin(np.fmax(table, -self.highest, out=table), self.highest, out=table)
        table[~(scales > 0)] = 0
        return self._packed(table.astype(I8).reshape(-1)[: array.size]), scales

    def decode_array(self, segments: Sequence[Array], shape: Shape) -> Array:
        """Multiply levels by the scales of their chunks."""
        codes, scales = segments
        table = _in_chunks(self._unpacked(codes, prod(shape)), *self._chunks(shape))
        table *= checked_scales(scales)[:, None]
        return table.reshape(-1)[: prod(shape)].reshape(shape)

    def _chunks(self, shape: Shape) -> tuple[int, int]:
        """Return how many chunks an array has, and how long they are."""
        size = max(1, shape[-1]) if self.config.rows and shape else CHUNK
        return -(-prod(shape) // size), size


class Int8(_Levels):
    """8.13 bits a value: integers of 8 bits, rounded at random; unbiased (QSGD)."""

    about = About(kind="any array", unbiased=True)
    highest = 127

    def _code_form(self, count: int) -> ArrayForm:
        return ArrayForm(I8, (count,))

    def _packed(self, levels: Array) -> Array:
        return levels

    def _unpacked(self, codes: Array, count: int) -> Array:
        if (codes == -128).any():
            raise DecodeError("a code of int8 is -128: levels are from -127 to 127")
        return codes


class Int4(_Levels):
    """4.13 bits a value: integers of 4 bits, rounded at random; unbiased (QSGD)."""

    about = About(kind="any array", unbiased=True)
    highest = 7

    def _code_form(self, count: int) -> ArrayForm:
        return ArrayForm(U8, (-(-count // 2),))

    def _packed(self, levels: Array) -> Array:
        nibbles = np.zeros(levels.size + levels.size % 2, U8)
        nibbles[: levels.size] = levels + 8
        packed: Array = nibbles[::2] | nibbles[1::2] << 4
        return packed

    def _unpacked(self, codes: Array, count: int) -> Array:
        nibbles = np.empty(2 * codes.size, U8)
        nibbles[::2], nibbles[1::2] = codes & 15, codes >> 4
        if not nibbles[:count].all() or nibbles[count:].any():
            raise DecodeError("a code of int4 is 0 or is behind the last: levels are coded as 1 to 15")
        return nibbles[:count].astype(I8) - I8.type(8)


def _in_chunks(row: Array, chunks: int, size: int) -> Array:
    """Return a row as a table of chunks, float32, the last one filled up with zeros."""
    table = np.zeros(chunks * size, F32)
    table[: row.size] = row
    return table.reshape(chunks, size)


def _largest(table: Array) -> Array:
    """Return the largest absolute value of each row; NaN where one is not finite."""
    largest: Array = np.maximum(table.max(axis=1, initial=0), -table.min(axis=1, initial=0))
    largest[np.isinf(largest)] = np.nan
    return largest


def _without_infinities(array: Array) -> Array:
    """Return an array in which an infinity, which no encoder gives, is NaN."""
    return np.where(np.isinf(array), F32.type(np.nan), array)


PLUGINS = {"float16": Float16, "bfloat16": BFloat16, "int8": Int8, "int4": Int4}
