"""Floating-point numbers of 16 bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from fedsim.config import Config
from fedsim.params import Array, ArrayForm
from fedsim.wire.codecs.base import F32, About, Codec, Coded, Coding, Layout, Shapes

U16 = np.dtype("<u2")
_LARGEST_BFLOAT16 = 0x7F7F
_INFINITE_BITS = np.uint32(0x7F80_0000)


class _Half(Codec[Config]):
    flops_per_value = (2.0, 1.0)
    dtype: ClassVar[np.dtype[np.generic]]

    def coded(self, shapes: Shapes) -> Layout:
        """Return arrays of the same shapes."""
        return Layout((), tuple(ArrayForm(self.dtype, shape) for shape in shapes))


class Float16(_Half):
    """16 bits a value: half precision; values beyond 65,504 become 65,504."""

    about = About(kind="any array")

    dtype = np.dtype("<f2")

    def encode(self, values: Sequence[Array], coding: Coding) -> Coded:
        """Round to the nearest."""
        largest = np.finfo(np.float16).max
        with np.errstate(all="ignore"):
            finite = [np.where(np.isfinite(array), array, np.nan).astype(F32) for array in values]
            return Coded((), [np.clip(array, -largest, largest).astype(self.dtype) for array in finite])

    def decode(self, coded: Coded, shapes: Shapes, coding: Coding) -> list[Array]:
        """Widen."""
        with np.errstate(all="ignore"):
            wide = [segment.astype(F32) for segment in coded.segments]
        return [np.where(np.isinf(array), F32.type(np.nan), array) for array in wide]

    def num_saturated(self, segments: Sequence[Array]) -> int:
        """Return how many values have become the largest number."""
        largest = np.finfo(np.float16).max
        return sum(int(np.count_nonzero(np.abs(segment) == largest)) for segment in segments)


class BFloat16(_Half):
    """16 bits a value: the range of float32 with 8 bits of precision."""

    about = About(kind="any array")

    dtype = U16

    def encode(self, values: Sequence[Array], coding: Coding) -> Coded:
        """Round to the nearest, ties to even."""
        segments = []
        for array in values:
            whole = np.asarray(array, F32, order="C").view(np.uint32)
            rounded = (whole + (np.uint32(0x7FFF) + (whole >> 16 & 1)) >> 16).astype(U16)
            magnitude = rounded & np.uint16(0x7FFF)
            is_finite = (whole & _INFINITE_BITS) != _INFINITE_BITS
            sign = (whole >> 16).astype(U16) & np.uint16(0x8000)
            largest = np.minimum(magnitude, np.uint16(_LARGEST_BFLOAT16)) | sign
            segments.append(np.where(is_finite, largest, np.uint16(0x7FC0)).astype(U16))
        return Coded((), segments)

    def decode(self, coded: Coded, shapes: Shapes, coding: Coding) -> list[Array]:
        """Append sixteen zeros."""
        wide = [(segment.astype(np.uint32) << 16).view(F32) for segment in coded.segments]
        return [np.where(np.isinf(array), F32.type(np.nan), array) for array in wide]


PLUGINS = {"float16": Float16, "bfloat16": BFloat16}
