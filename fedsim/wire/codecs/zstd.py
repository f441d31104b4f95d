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
from fedsim.errors import DecodeError, UserError
from fedsim.params import Array, ArrayForm
from fedsim.plugins import install_command, is_installed
from fedsim.wire.codecs.base import F32, U8, About, Codec, Coded, Coding, Layout, Shapes, num_values

_EXTRA_BYTES = 512
"""What a compressed segment takes at most beyond the bytes themselves, and 1 / 256 of them."""


class ZstdConfig(Config):
    """How hard it tries."""

    level: Annotated[int, Field(ge=1, le=22)] = 3
    """Zstandard's level of compression."""


class Zstd(Codec[ZstdConfig]):
    """Compresses bytes by Zstandard, the bytes of each array shuffled by their place in a value."""

    about = About(kind="any array", unbiased=True)
    has_fixed_length = False
    flops_per_value = (20.0, 5.0)

    def coded(self, shapes: Shapes) -> Layout:
        """Return nothing that goes on; one segment, of the most bytes that it can have."""
        return self.layout(Layout(shapes))

    def layout(self, before: Layout) -> Layout:
        """Return the form of one segment, of the most bytes that it can have."""
        num_bytes = sum(form.nbytes for form in _forms(before))
        return Layout((), (ArrayForm(U8, (num_bytes + num_bytes // 256 + _EXTRA_BYTES,)),))

    def encode(self, values: Sequence[Array], coding: Coding) -> Coded:
        """Compress values without segments before them."""
        return self.apply(Coded(values), coding)

    def apply(self, before: Coded, coding: Coding) -> Coded:
        """Compress values and segments."""
        arrays = [*before.segments, *(array.astype(F32) for array in before.values)]
        shuffled = [
            np.ascontiguousarray(array).view(U8).reshape(-1, array.itemsize).T.tobytes()
            for array in map(np.atleast_1d, arrays)
            if array.size
        ]
        compressed = _package().ZstdCompressor(level=self.config.level).compress(b"".join(shuffled))
        return Coded((), [np.frombuffer(compressed, U8)])

    def decode(self, coded: Coded, shapes: Shapes, coding: Coding) -> list[Array]:
        """Decompress values without segments before them."""
        return list(self.undo(coded, Layout(shapes), coding).values)

    def undo(self, after: Coded, before: Layout, coding: Coding) -> Coded:
        """Decompress, into no more bytes than the forms have."""
        package, forms = _package(), _forms(before)
        size, data = sum(form.nbytes for form in forms), bytes(after.segments[0].data)
        try:
            # The size that the bytes announce is checked before memory is taken.
            if package.frame_content_size(data) != size:
                raise DecodeError(f"compressed bytes do not announce {size} bytes")
            whole = np.frombuffer(package.ZstdDecompressor().decompress(data, allow_extra_data=False), U8)
        except package.ZstdError as error:
            raise DecodeError(f"these bytes cannot be decompressed: {error}") from None
        arrays, first = [], 0
        for form in forms:
            part = whole[first : first + form.nbytes].reshape(form.dtype.itemsize, -1)
            arrays.append(np.ascontiguousarray(part.T).reshape(-1).view(form.dtype).reshape(form.shape))
            first += form.nbytes
        count = len(before.segments)
        return Coded(arrays[count:], arrays[:count])

    def flops(self, shapes: Shapes) -> tuple[float, float]:
        """Return the operations for each value, as if all were values."""
        return 20.0 * num_values(shapes), 5.0 * num_values(shapes)


def _forms(layout: Layout) -> list[ArrayForm]:
    return [*layout.segments, *(ArrayForm(F32, shape) for shape in layout.values)]


def _package() -> Any:
    if not is_installed("zstandard"):
        raise UserError(f"the codec 'zstd' needs the package zstandard: {install_command('zstd')}")
    return import_module("zstandard")


PLUGIN = Zstd
