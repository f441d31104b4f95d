"""Arrays behind the msgpack that describes them, in frames and in saved states.

A list gives the dtype, shape and length in bytes of each array. Then follow, for each array, up to fifteen
``nil`` as padding and one ``bin`` with its C-contiguous little-endian bytes, which start at a multiple of 16.
No other form is valid, so arrays are read by position, as read-only views of the bytes received.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

import msgpack
import numpy as np

from fedsim.errors import DecodeError
from fedsim.params import Array
from fedsim.quoting import shortened
from fedsim.walk import octets
from fedsim.wire.contents import BOOL, DTYPES, NAMES, Limits, PendingArray
from fedsim.wire.field_types import show

ALIGNMENT = 16

Described = tuple[np.dtype[Any], tuple[int, ...], int]
"""Dtype, shape and length in bytes of one array."""

_NIL = b"\xc0"
_BIN_WIDTHS = {0xC4: 1, 0xC5: 2, 0xC6: 4}


class Bins:
    """Encoded arrays, in parts that need not be joined; nothing is copied.

    Attributes:
        listed: Dtype, shape and length in bytes of each array.
        packed_list: The same in msgpack.
        num_bytes: Length of all parts.
    """

    __slots__ = ("_arrays", "_gaps", "_parts", "listed", "num_bytes", "packed_list")

    def __init__(self, arrays: Sequence[Array | PendingArray]) -> None:
        self._arrays = arrays
        self._parts: tuple[bytes | memoryview, ...] | None = None
        self.listed = tuple([(NAMES[array.dtype], array.shape, array.nbytes) for array in arrays])
        self.packed_list, self._gaps, self.num_bytes = _layout(self.listed)

    def __len__(self) -> int:
        return len(self._arrays)

    @property
    def parts(self) -> tuple[bytes | memoryview, ...]:
        """The arrays' bytes: the first array, the next padding and header, the next array, and so on."""
        if self._parts is None:
            parts: list[bytes | memoryview] = []
            for gap, array in zip(self._gaps, self._arrays, strict=True):
                parts += gap, octets(array.computed() if isinstance(array, PendingArray) else array)
            self._parts = tuple(parts[1:])
        return self._parts

    @property
    def first(self) -> bytes:
        """The header of the first array; empty where there is none."""
        return self._gaps[0] if self._gaps else b""


def lead(header: bytes, position: int) -> bytes:
    """Return the padding and header of the first array, which follow an envelope of this length."""
    return _padding(position + len(header)) + header if header else b""


@lru_cache(maxsize=256)  # the messages of one kind mostly hold arrays of the same shapes
def _layout(listed: tuple[tuple[str, tuple[int, ...], int], ...]) -> tuple[bytes, tuple[bytes, ...], int]:
    """Return the list of arrays in msgpack, the gap before each array, and the length of arrays and gaps.

    A gap is padding and a header. The first one is a header alone and not part of the length, since its
    padding depends on the envelope; the others are padded relative to the first array, which is aligned.
    """
    gaps: list[bytes] = []
    position = 0
    for _, _, num_bytes in listed:
        gap = _header(num_bytes)
        if gaps:
            gap = _padding(position + len(gap)) + gap
            position += len(gap)
        gaps.append(gap)
        position += num_bytes
    return msgpack.packb(listed), tuple(gaps), position


def checked_headers(wire: Any, limits: Limits) -> list[Described]:
    """Check the list of arrays, before anything is allocated for them."""
    if type(wire) is not tuple or len(wire) > limits.arrays:
        raise DecodeError(f"envelope.arrays: {show(wire)} is not a list of at most {limits.arrays}")
    checked = []
    for number, entry in enumerate(wire):
        if type(entry) is not tuple or len(entry) != 3:
            raise DecodeError(f"arrays[{number}]: {show(entry)} is not [dtype, shape, length]")
        name, shape, num_bytes = entry
        dtype = DTYPES.get(name) if type(name) is str else None
        if dtype is None:
            raise DecodeError(f"arrays[{number}]: the dtype {show(name)} is none of {', '.join(DTYPES)}")
        if type(shape) is not tuple or len(shape) > limits.dimensions:
            raise DecodeError(
                f"arrays[{number}]: the shape, {show(shape)}, is no list of at most {limits.dimensions}"
            )
        for size in shape:
            if type(size) is not int or not 0 <= size <= limits.frame_bytes:
                raise DecodeError(f"arrays[{number}]: {show(size)} is no size of a dimension")
        if type(num_bytes) is not int or num_bytes != prod(shape) * dtype.itemsize:
            raise DecodeError(
                f"arrays[{number}]: {show(num_bytes)} bytes for {name} of shape {shortened(list(shape))}"
            )
        # An empty array may have any other sizes, but NumPy refuses a product beyond its index type.
        if num_bytes == 0 and prod(size or 1 for size in shape) > limits.frame_bytes:
            raise DecodeError(
                f"arrays[{number}]: the shape {shortened(list(shape))} of an empty array is absurd"
            )
        checked.append((dtype, shape, num_bytes))
    return checked


def arrays_of_bytes(whole: memoryview, position: int, announced: list[Described]) -> list[Array]:
    """Return the arrays from a position to the end of the bytes, as views of them."""
    arrays = []
    for number, (dtype, shape, num_bytes) in enumerate(announced):
        start = _bin_start(whole, position, num_bytes, number)
        position = start + num_bytes
        if position > len(whole):
            raise DecodeError(
                f"arrays[{number}]: {num_bytes} bytes from byte {start}, the frame ends at {len(whole)}"
            )
        array: Array = np.ndarray(shape, dtype, whole, start)
        if dtype is BOOL and array.view(np.uint8).max(initial=0) > 1:
            raise DecodeError(f"arrays[{number}]: a bool is neither 0 nor 1")
        arrays.append(array)
    if position != len(whole):
        raise DecodeError(f"frame: {len(whole) - position} bytes are left over at byte {position}")
    return arrays


def _bin_start(whole: memoryview, position: int, num_bytes: int, number: int) -> int:
    """Skip padding and the header of a ``bin``, and return where its bytes start."""
    padding_end = min(position + ALIGNMENT - 1, len(whole))
    while position < padding_end and whole[position] == 0xC0:
        position += 1
    width = _BIN_WIDTHS.get(whole[position]) if position < len(whole) else 0
    if width is None:
        raise DecodeError(f"arrays[{number}]: byte {position} is neither nil (less than 16) nor bin")
    start = position + 1 + width
    if start > len(whole):
        raise DecodeError(f"arrays[{number}]: the frame ends at byte {len(whole)}, before the array starts")
    length = int.from_bytes(whole[position + 1 : start], "big")
    if length != num_bytes:
        raise DecodeError(f"arrays[{number}]: a bin of {length} bytes, the envelope says {num_bytes}")
    if start % ALIGNMENT:
        raise DecodeError(f"arrays[{number}]: starts at byte {start}, not a multiple of {ALIGNMENT}")
    return start


def _header(num_bytes: int) -> bytes:
    if num_bytes < 1 << 8:
        return b"\xc4" + num_bytes.to_bytes(1)
    if num_bytes < 1 << 16:
        return b"\xc5" + num_bytes.to_bytes(2)
    if num_bytes < 1 << 32:
        return b"\xc6" + num_bytes.to_bytes(4)
    raise ValueError(f"an array of {num_bytes} bytes: msgpack holds less than 4 GiB in one")


def _padding(position: int) -> bytes:
    return _NIL * (-position % ALIGNMENT)
