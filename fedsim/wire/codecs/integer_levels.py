"""Integers of 8 or 4 bits, with one scale for each chunk of 256 values, rounded at random (QSGD).

The scale s of a chunk is its largest absolute value over the highest level L (127 or 7). A value x becomes
floor(x / s + u), where u is uniform in [0, 1), so the expectation of what is decoded is x. This is the
quantiser of Alistarh et al., QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding,
NeurIPS 2017, by the largest value instead of the norm, with L levels.
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
from fedsim.wire.codecs.base import F32, U8, About, Codec, Coded, Coding, Layout, Shapes, checked_scales

CHUNK = 256


class LevelsConfig(Config):
    """What has a scale of its own."""

    rows: bool = False
    """Whether each row of an array, such as a sample's logits, has a scale, instead of each chunk of 256."""


class _Levels(Codec[LevelsConfig]):
    flops_per_value = (6.0, 2.0)
    highest: ClassVar[int]

    @abstractmethod
    def _code_form(self, shape: tuple[int, ...]) -> ArrayForm:
        """Return the form of the codes of an array."""

    @abstractmethod
    def _packed(self, levels: Array) -> Array:
        """Return int8 levels, flat, as they travel."""

    @abstractmethod
    def _unpacked(self, codes: Array, count: int) -> Array:
        """Return the int8 levels, flat; a DecodeError where no encoder gives them."""

    def coded(self, shapes: Shapes) -> Layout:
        """Return the forms of codes and scales."""
        segments = list[ArrayForm]()
        for shape in shapes:
            chunks, _ = self._chunks(shape)
            segments += self._code_form(shape), ArrayForm(F32, (chunks,))
        return Layout((), tuple(segments))

    def encode(self, values: Sequence[Array], coding: Coding) -> Coded:
        """Round each value to one of the two next levels, at random."""
        generator, segments = coding.generator("levels"), list[Array]()
        for array in values:
            chunks, size = self._chunks(array.shape)
            padded = np.zeros(chunks * size, F32)
            padded[: array.size] = array.reshape(-1)
            table = padded.reshape(chunks, size)
            scales = _largest(table) / F32.type(self.highest)
            with np.errstate(all="ignore"):
                table /= scales[:, None]  # a chunk of zeros becomes NaN
                table += generator.random(table.shape, F32)
                np.floor(table, out=table)
            np.fmin(np.fmax(table, -self.highest, out=table), self.highest, out=table)
            table[~(scales > 0)] = 0
            levels = table.astype(np.int8).reshape(-1)[: array.size]
            segments += self._packed(levels), scales
        return Coded((), segments)

    def decode(self, coded: Coded, shapes: Shapes, coding: Coding) -> list[Array]:
        """Multiply levels by the scales of their chunks."""
        arrays = []
        for shape, codes, scales in zip(shapes, coded.segments[::2], coded.segments[1::2], strict=True):
            chunks, size = self._chunks(shape)
            table = np.zeros(chunks * size, F32)
            table[: prod(shape)] = self._unpacked(codes.reshape(-1), prod(shape))
            with np.errstate(all="ignore"):
                table.reshape(chunks, size)[:] *= checked_scales(scales)[:, None]
            arrays.append(table[: prod(shape)].reshape(shape))
        return arrays

    def _chunks(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """Return how many chunks an array has, and how long they are."""
        count = prod(shape)
        size = CHUNK if not self.config.rows or not shape else max(1, shape[-1])
        return -(-count // size), size


def _largest(table: Array) -> Array:
    """Return the largest absolute value of each row; NaN where one is not finite."""
    largest: Array = np.maximum(table.max(axis=1, initial=0), -table.min(axis=1, initial=0))
    largest[np.isinf(largest)] = np.nan
    return largest


class Int8(_Levels):
    """8.13 bits a value: integers of 8 bits, rounded at random; unbiased (QSGD)."""

    about = About(kind="any array", unbiased=True)

    highest = 127

    def _code_form(self, shape: tuple[int, ...]) -> ArrayForm:
        return ArrayForm(np.dtype(np.int8), (prod(shape),))

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

    def _code_form(self, shape: tuple[int, ...]) -> ArrayForm:
        return ArrayForm(U8, (-(-prod(shape) // 2),))

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
        return nibbles[:count].astype(np.int8) - np.int8(8)


PLUGINS = {"int8": Int8, "int4": Int4}
