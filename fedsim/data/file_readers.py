"""Reading arrays (.npy, .npy.xz, .npz, and idx files such as those of MNIST) and texts for data sets.

Nothing is ever unpickled, and sizes are bounded before anything is read.
"""

import os
import zipfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedsim import bounded_unpacking
from fedsim.data.base import LoadContext, blamed
from fedsim.errors import DataError
from fedsim.params import Array
from fedsim.quoting import MAX_SHOWN, quoted, shortened

IDX_ENDINGS = ("-ubyte", "-ubyte.gz")
"""Endings of the names of idx files of bytes."""

MAX_TEXT_BYTES = 2**30
"""Most bytes that a packed text may unpack to: 1 GiB."""

_IDX_BYTES = b"\x00\x00\x08"


def read_array(path: Path, key: str, key_setting: str) -> Array:
    """Return the array of a file."""
    require_file(path)
    if not path.name.endswith((".npz", ".npy", ".npy.xz", *IDX_ENDINGS)):
        raise DataError(
            f"{path} is not .npz, .npy, .npy.xz or *-ubyte[.gz]: save the array with numpy.save or "
            "numpy.savez"
        )
    try:
        if path.suffix == ".npz":
            return _member(path, key, key_setting)
        with bounded_unpacking.opened(path) as stream:
            read = _idx if path.name.endswith(IDX_ENDINGS) else bounded_unpacking.read_npy
            # A plain file is no larger in memory than on the disk, so it may have any size.
            return read(
                stream, bounded_unpacking.MAX_BYTES if path.suffix in (".gz", ".xz") else path.stat().st_size
            )
    except DataError:
        raise
    except Exception as error:
        problem = str(error) or "there is no memory for it"  # a MemoryError has no text
        raise DataError(f"{path} cannot be read as a plain array: {problem}") from error


def require_file(path: Path) -> None:
    """Raise unless there is a file at ``path``."""
    if not os.path.isfile(path):  # noqa: PTH113 - also False for a name that no file can have
        raise DataError(f"{shortened(path, MAX_SHOWN)} is not a file")


def read_numbers(context: LoadContext, file: str, key: str, setting: str) -> NDArray[np.int64]:
    """Return an array of whole numbers from 0, such as labels, from a file, int64 (n,)."""
    with blamed(setting):
        path = context.path(file)
        array = read_array(path, key, f"{setting[:-1]}_key")
        what = setting.removeprefix("test_")
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise DataError(
                f"{path} holds {array.dtype} of shape {array.shape}; {what} are integers of shape (n,)"
            )
        if array.size and array.min() < 0:
            raise DataError(f"{path} holds the {what[:-1]} {array.min()}; {what} are numbered from 0")
    return array.astype(np.int64)


def read_users(
    context: LoadContext, file: str | None, key: str, num_samples: int
) -> NDArray[np.int64] | None:
    """Return the user who made each sample, int64 (n,), from the file that the setting ``users`` names."""
    if file is None:
        return None
    users = read_numbers(context, file, key, "users")
    if len(users) != num_samples:
        raise DataError(
            f"{context.path(file)} holds {len(users)} users for {num_samples} samples: "
            "give one user for each sample",
            setting="users",
        )
    return users


def read_text(path: Path) -> str:
    """Return a text in UTF-8, plain or .gz, that the setting ``file`` names; line ends stay as they are."""
    with blamed("file"):
        require_file(path)
        try:
            with bounded_unpacking.opened(path) as stream:
                most_bytes = MAX_TEXT_BYTES if path.suffix == ".gz" else path.stat().st_size
                return bounded_unpacking.take_all(stream, most_bytes).decode("utf-8-sig")
        except Exception as error:
            raise DataError(f"{path} cannot be read as text in UTF-8: {error}") from error


def scaled(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return images of bytes, in any layout, as float32 in [0, 1], in C order."""
    x = images.astype(np.float32, order="C")
    x /= 255
    return x


def _member(path: Path, key: str, key_setting: str) -> Array:
    with zipfile.ZipFile(path) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist()]
        if key not in names:
            raise DataError(
                f"{path} has no array {quoted(key)}, it has: "
                f"{shortened(', '.join(names), MAX_SHOWN)}; name the one you mean with {key_setting}"
            )
        return bounded_unpacking.read_member(
            archive, key, max(bounded_unpacking.MAX_BYTES, path.stat().st_size)
        )


def _idx(stream: bounded_unpacking.Stream, most_bytes: int) -> Array:
    """Read two zeros, 8 for bytes, the number of axes, their lengths as 4 big-endian bytes each, values."""
    head = bounded_unpacking.take(stream, 4)
    if head[:3] != _IDX_BYTES or len(head) < 4:
        raise ValueError("its header is not that of an idx file of bytes")
    lengths = bounded_unpacking.take(stream, 4 * head[3])
    if len(lengths) < 4 * head[3]:
        raise ValueError(f"it ends within the lengths of its {head[3]} axes")
    shape = tuple(map(int, np.frombuffer(lengths, ">i4")))
    return bounded_unpacking.take_values(stream, shape, np.dtype(np.uint8), most_bytes)
