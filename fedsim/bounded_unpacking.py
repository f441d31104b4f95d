"""Files that unpack to more than they are: read no further than their headers say, and never beyond a bound.

A few megabytes can stand for gigabytes, and a header for anything. So what an array takes is read from its
header first, and refused there where it is too much; then so many bytes are unpacked and no more, a piece at
a time, so that memory is taken only for bytes that are really there.

What a damaged file raises is for the decoders to say, and between them they raise a dozen classes of
exceptions: so whoever reads a file here takes every :class:`Exception` for damage.
"""

from __future__ import annotations

import gzip
import lzma
import tokenize
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

import numpy as np
from numpy.typing import NDArray

MAX_BYTES = 2 * 2**30
"""What an array may unpack to, unless its reader says less: 2 GiB. A plain file may hold more."""

_PIECE_BYTES = 2**20
_MAX_HEADER_BYTES = 2**16
_XZ_BYTES = 2**27
"""Memory of an xz decoder: its best packing takes 65 MiB, and a header may ask for 4 GiB."""


class Stream(Protocol):
    """A source of bytes."""

    def read(self, num_bytes: int, /) -> bytes:
        """Return at most so many bytes, and at least one before the end."""


def take(stream: Stream, num_bytes: int) -> bytearray:
    """Return the next bytes of a stream: as many as asked for, or all there are."""
    taken = bytearray()
    while len(taken) < num_bytes:
        piece = stream.read(min(_PIECE_BYTES, num_bytes - len(taken)))
        if not piece:
            break
        taken += piece
    return taken


def take_all(stream: Stream, most_bytes: int) -> bytearray:
    """Return what is left of a stream."""
    taken = take(stream, most_bytes)
    if stream.read(1):
        raise ValueError(f"it unpacks to more than {most_bytes} bytes: keep it unpacked, or split it")
    return taken


def take_values(
    stream: Stream, shape: tuple[int, ...], dtype: np.dtype[Any], most_bytes: int
) -> NDArray[Any]:
    """Return the array that the rest of a stream is, in C order."""
    if not dtype.itemsize:  # any number of which would pass every bound
        raise ValueError(f"its header asks for {dtype}, values of no bytes")
    num_bytes = prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or num_bytes > most_bytes:
        raise ValueError(
            f"its header asks for {num_bytes} bytes, {dtype} of shape {shape}: it can hold at most "
            f"{most_bytes}"
        )
    data = take(stream, num_bytes)
    if len(data) < num_bytes or stream.read(1):
        there = "more" if len(data) == num_bytes else f"{len(data)}"
        raise ValueError(f"its header asks for {num_bytes} bytes, and there are {there}")
    return np.frombuffer(data, dtype).reshape(shape) if num_bytes else np.empty(shape, dtype)


def read_npy(stream: Stream, most_bytes: int) -> NDArray[Any]:
    """Return the array of a .npy stream, which is never unpickled."""
    head = cast(BinaryIO, stream)  # of which no more than `read` is asked for
    version = np.lib.format.read_magic(head)
    if version != (1, 0):  # whose header is at most 64 KiB long; that of 2.0 may be any number of bytes
        raise ValueError(f"a .npy file of version {version}: plain arrays have version 1.0")
    try:
        shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(head)
    except (SyntaxError, tokenize.TokenError) as error:  # a header is a Python literal
        raise ValueError(f"its header cannot be read: {error}") from None
    if dtype.hasobject:
        raise ValueError(f"it holds {dtype}, Python objects, which are never unpickled")
    if is_fortran:
        return take_values(stream, shape[::-1], dtype, most_bytes).transpose()
    return take_values(stream, shape, dtype, most_bytes)


@contextmanager
def opened(path: Path) -> Iterator[Stream]:
    """Open a file as what it unpacks to: .gz, .xz, or plain."""
    with path.open("rb") as file:
        if path.suffix == ".gz":
            yield gzip.GzipFile(fileobj=file)
        else:
            yield Unxz(file) if path.suffix == ".xz" else file


class Unxz:
    """What an .xz file unpacks to; unlike :class:`lzma.LZMAFile` it bounds its decoder's memory."""

    def __init__(self, file: Stream) -> None:
        self._file = file
        self._decoder = lzma.LZMADecompressor(memlimit=_XZ_BYTES)

    def read(self, num_bytes: int, /) -> bytes:
        """Return at most so many bytes; none at the end."""
        while num_bytes:
            data = b""
            if self._decoder.eof:
                # Another stream may follow; zeros between them, or at the end, are padding.
                data = self._decoder.unused_data.lstrip(b"\0")
                while not data and (piece := self._file.read(_PIECE_BYTES)):
                    data = piece.lstrip(b"\0")
                if not data:
                    break
                self._decoder = lzma.LZMADecompressor(memlimit=_XZ_BYTES)
            elif self._decoder.needs_input and not (data := self._file.read(_PIECE_BYTES)):
                raise EOFError("it ends before its end mark")
            if piece := self._decoder.decompress(data, num_bytes):
                return piece
        return b""


def read_member(archive: zipfile.ZipFile, name: str, most_bytes: int) -> NDArray[Any]:
    """Return an array of an .npz archive."""
    info = archive.getinfo(f"{name}.npy")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{name} is not packed as numpy.savez does it")
    if info.file_size > most_bytes + _MAX_HEADER_BYTES:
        raise ValueError(
            f"{name} unpacks to {info.file_size} bytes, and may to {most_bytes}: save it with numpy.save"
        )
    with archive.open(info) as stream:
        return read_npy(stream, most_bytes)
