"""The contents of frames: limits, dtypes, and arrays in the layout of frames (C-contiguous, little-endian).

The limits hold for packing too, so everything that is sent can be decoded under the default.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsim.params import Array, PendingTree


@dataclass(frozen=True, slots=True)
class Limits:
    """What a decoder accepts; ``arrays`` also bounds the names of a tree.

    Nesting is bounded by the declared fields of a kind.
    """

    frame_bytes: int = 2**31
    envelope_bytes: int = 256 * 1024
    arrays: int = 4096
    dimensions: int = 16
    string_bytes: int = 4096
    name_characters: int = 256


DEFAULT = Limits()

NAMES: dict[np.dtype[Any], str] = {
    np.dtype(name): name
    for name in ("|b1", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8")
}
"""The name of each dtype in an envelope: NumPy's type string, with the byte order."""

DTYPES: dict[str, np.dtype[Any]] = {name: dtype for dtype, name in NAMES.items()}

BOOL = DTYPES["|b1"]


def plain(array: Array, where: str) -> Array:
    """Return an array in the layout of frames, itself if it is C-contiguous and little-endian."""
    if type(array) is not np.ndarray:
        if not isinstance(array, (np.memmap, np.generic)):  # arithmetic on 0-d arrays gives scalars
            raise TypeError(f"{where}: a {type(array).__name__} is not an array: pass a plain numpy.ndarray")
        array = np.asarray(array)
    if array.nbytes >= DEFAULT.frame_bytes:  # before anything is copied
        raise ValueError(f"{where}: {array.nbytes} bytes, a frame holds at most {DEFAULT.frame_bytes}")
    if array.dtype not in NAMES:
        # newbyteorder of an exotic dtype is harmless: it is not in the table either.
        little = array.dtype.newbyteorder("<")
        if little not in NAMES:
            raise TypeError(
                f"{where}: an array of dtype {array.dtype} cannot travel: cast it to bool, int8 to int64, "
                "uint8 to uint64, or float16 to float64"
            )
        array = array.astype(little, order="C")
    if not array.flags.c_contiguous:
        array = array.copy(order="C")
    if array.ndim > DEFAULT.dimensions:
        raise ValueError(f"{where}: {array.ndim} dimensions, a frame holds at most {DEFAULT.dimensions}")
    return array


class PendingArray:
    """An array of a pending tree, in the layout of frames."""

    __slots__ = ("_name", "_tree", "dtype", "nbytes", "shape", "size")

    def __init__(self, tree: PendingTree, name: str) -> None:
        form = tree.form[name]
        self._tree = tree
        self._name = name
        self.dtype, self.shape, self.nbytes, self.size = form.dtype, form.shape, form.nbytes, form.size

    def computed(self) -> Array:
        """Return the array."""
        return plain(self._tree[self._name], self._name)
