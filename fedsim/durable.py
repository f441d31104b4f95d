"""Writing files durably: a crash or a full disk leaves the old file or the new one, never half of one.

What the operating system refuses becomes a :class:`fedsim.errors.FileError`, which names the place and the
reason, and says what to do.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from io import BufferedWriter, FileIO
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from fedsim.errors import FedsimError, FileError
from fedsim.quoting import MAX_SHOWN, shortened

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

_BUFFER_BYTES = 1 << 20

PART = ".part"
"""What ends the name of a file that is being written beside its place."""


@contextmanager
def telling(
    place: Path, mend: str, *, doing: str = "write", error: type[FedsimError] = FileError
) -> Iterator[None]:
    """Turn an ``OSError`` of the block into an error that says what to do."""
    try:
        yield
    except OSError as refused:
        named = refused.filename
        if isinstance(named, str | os.PathLike) and Path(named).is_relative_to(place):
            place = Path(named)
        raise error(
            f"cannot {doing} {shortened(place, MAX_SHOWN)}: {refused.strerror or refused}. {mend}"
        ) from None


def create(path: Path, place: Path, mend: str, *, private: bool = False) -> BinaryIO:
    """Open a new, empty file for writing; after a write has failed, all later writes fail too."""
    with telling(place, mend):
        return BufferedWriter(_Growing(path, place, mend, private), _BUFFER_BYTES)


def reopen(path: Path, place: Path, mend: str, num_bytes: int) -> BinaryIO:
    """Open a file for writing behind its first bytes; what is there is lost. Otherwise as :func:`create`."""
    with telling(place, mend):
        os.truncate(path, num_bytes)
        return BufferedWriter(_Growing(path, place, mend, private=False, mode="a"), _BUFFER_BYTES)


@contextmanager
def replacing(path: Path, place: Path, mend: str, *, private: bool = False) -> Iterator[BinaryIO]:
    """Yield a file to write into, which stands at its path when the block ends without an exception."""
    beside = path.with_name(f"{path.name}{PART}")
    try:
        with create(beside, place, mend, private=private) as file:
            yield file
        with telling(place, mend):
            beside.replace(path)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise


def write(path: Path, *pieces: Buffer, mend: str, private: bool = True, place: Path | None = None) -> None:
    """Write a file, or replace one, atomically and durably; errors name the place that it belongs to."""
    place = place or path
    with replacing(path, place, mend, private=private) as file:
        for piece in pieces:
            file.write(piece)
        file.flush()
        with telling(place, mend):
            os.fsync(file.fileno())
    with telling(place, mend):
        sync(path.parent)


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


class _Growing(FileIO):
    """A file that fails for good once a write has failed, so nothing is missing in its middle."""

    def __init__(self, path: Path, place: Path, mend: str, private: bool, mode: str = "w") -> None:
        self._place, self._mend = place, mend
        self._refused: FileError | None = None
        super().__init__(path, mode, opener=partial(os.open, mode=0o600 if private else 0o666))
        if private:
            os.fchmod(self.fileno(), 0o600)  # whatever the umask, and if it was there

    def write(self, content: Buffer, /) -> int:
        if self._refused is not None:
            raise self._refused
        try:
            with telling(self._place, self._mend):
                return self._put(content)
        except FileError as error:
            self._refused = error
            raise

    def close(self) -> None:
        is_first = not self.closed
        with telling(self._place, self._mend):
            super().close()
        if is_first and self._refused is not None:
            raise self._refused

    def _put(self, content: Buffer) -> int:
        return super().write(content)
