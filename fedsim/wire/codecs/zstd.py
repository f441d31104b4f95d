"""Zstandard: what the codecs before give, without a further loss; last in a chain; unbiased.

The length depends on the values, so a client's training is waited for before its upload begins. (Needs the
extra zstd.)
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from fedsim.config import Config
from fedsim.errors import DecodeError
from fedsim.params import Array, ArrayForm
from fedsim.wire.codecs.base import F32, U8, About, Codec, Coded, Coding, Layout, Shapes


class ZstdConfig(Config):
    """The settings of Zstandard."""

    level: Annotated[int, Field(ge=1, le=22)] = 3
    """Zstandard's level of compression."""


class Zstd(Codec[ZstdConfig]):
    """Compresses bytes by Zstandard, the bytes of each array shuffled by their place in a value."""

    about = About(kind="any array", unbiased=True)
    takes_segments = True
    extra = ("zstandard", "zstd")
    longest = "fedsim.wire.codecs.zstd.Stored"
    flops_per_value = (20.0, 5.0)

    def coded(self, shapes: Shapes) -> Layout:
        """Return one segment, of the most bytes that it can have."""
        return self.layout(Layout(shapes))

    def encode(self, values: Sequence[Array], coding: Coding) -> Coded:
        """Compress values without segments before them."""
        return self.apply(Coded(values), coding)

    def decode(self, coded: Coded, shapes: Shapes, coding: Coding) -> Sequence[Array]:
        """Decompress values without segments before them."""
        return self.undo(coded, Layout(shapes), coding).values

    def layout(self, before: Layout) -> Layout:
        """Return one segment, of the most bytes that it can have."""
        return Layout((), (ArrayForm(U8, (_most(_num_bytes(before)),)),))

    def flops(self, before: Layout) -> tuple[float, float]:
        """Return the operations for each four bytes."""
        encode, decode = self.flops_per_value
        return encode * _num_bytes(before) / 4, decode * _num_bytes(before) / 4

    def apply(self, before: Coded, coding: Coding) -> Coded:
        """Compress values and segments."""
        arrays = [*before.segments, *(array.astype(F32) for array in before.values)]
        shuffled = [
            np.ascontiguousarray(array).view(U8).reshape(-1, array.itemsize).T.tobytes()
            for array in map(np.atleast_1d, arrays)
            if array.size
        ]
        return Coded((), [np.frombuffer(self._compressed(b"".join(shuffled)), U8)])

    def undo(self, after: Coded, before: Layout, coding: Coding) -> Coded:
        """Decompress, into no more bytes than the forms have."""
        whole = np.frombuffer(self._decompressed(bytes(after.segments[0].data), _num_bytes(before)), U8)
        arrays, first = [], 0
        for form in _forms(before):
            part = whole[first : first + form.nbytes].reshape(form.dtype.itemsize, -1)
            arrays.append(np.ascontiguousarray(part.T).reshape(-1).view(form.dtype).reshape(form.shape))
            first += form.nbytes
        count = len(before.segments)
        return Coded(arrays[count:], arrays[:count])

    def _compressed(self, data: bytes) -> bytes:
        compressed: bytes = _package().ZstdCompressor(level=self.config.level).compress(data)
        return compressed

    def _decompressed(self, data: bytes, size: int) -> bytes:
        package = _package()
        try:
            # The size that the bytes announce is checked before memory is taken.
            if package.frame_content_size(data) != size:
                raise DecodeError(f"compressed bytes do not announce {size} bytes")
            whole: bytes = package.ZstdDecompressor().decompress(data, allow_extra_data=False)
        except package.ZstdError as error:
            raise DecodeError(f"these bytes cannot be decompressed: {error}") from None
        return whole


class Stored(Zstd):
    """Always gives the most bytes that Zstandard can give: for rehearsals, whose models are not trained."""

    extra = ("", "")
    longest = ""

    def _compressed(self, data: bytes) -> bytes:
        return data.ljust(_most(len(data)), b"\0")

    def _decompressed(self, data: bytes, size: int) -> bytes:
        return data[:size]


def _forms(layout: Layout) -> list[ArrayForm]:
    return [*layout.segments, *(ArrayForm(F32, shape) for shape in layout.values)]


def _num_bytes(layout: Layout) -> int:
    return sum(form.nbytes for form in _forms(layout))


def _most(num_bytes: int) -> int:
    """Return the most bytes that Zstandard gives for an input of a length."""
    return num_bytes + num_bytes // 256 + 512


def _package() -> Any:
    return import_module("zstandard")


PLUGINS = {"zstd": Zstd}
