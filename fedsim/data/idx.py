"""Reading sets of the MNIST family with torchvision, from a folder that may be read-only.

Such a set is four files in ``<root>/<Name>/raw``, plain or with ``.gz``. torchvision reads plain ones only,
and would unpack beside them; here they are unpacked into a temporary folder instead, and nothing is written
below the root. Images are (n, 28, 28) bytes until :func:`scaled` makes samples of them.
"""

import gzip
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedsim import packed
from fedsim.config import Config
from fedsim.data.array_files import read_users
from fedsim.data.base import Dataset, LoadContext
from fedsim.data.torchvision_datasets import torchvision_datasets
from fedsim.durable import telling
from fedsim.errors import DataError
from fedsim.task import Task

MOST_BYTES = 2**30
"""What a packed file may unpack to, 1 GiB: the largest of these sets' takes half of it."""

PARTS = ("train", "t10k")
"""The parts of MNIST and Fashion-MNIST, as their files are named."""


class IdxConfig(Config):
    """Settings of a set whose images may have known writers."""

    users: str | None = Field(default=None, min_length=1)
    """File of integers from 0, who made each image of the train part (.npz, .npy or .npy.xz), for a natural
    partition; a relative path starts at the root."""
    user_key: str = "users"
    """Name of the array of users in a .npz."""


def load(name: str, context: LoadContext, config: IdxConfig) -> Dataset:
    """Return the set that torchvision calls ``name``: its train part, and its test part as the test part.

    Raises:
        DataError: No root, or files that are missing or damaged; the message says how to get them.
    """
    raw = raw_folder(name, context, PARTS)
    with shown(raw, name, PARTS) as folder:
        images, y = read(name, folder, raw, PARTS[0], train=True)
        test_images, test_y = read(name, folder, raw, PARTS[1], train=False)
    x, test_x = scaled(images), scaled(test_images)
    return Dataset(Task(x.shape[1:], 10), x, y, test_x, test_y, users=users(context, config, len(x)))


def users(context: LoadContext, config: IdxConfig, num_samples: int) -> NDArray[np.int64] | None:
    """Return who made each sample, int64 (n,), or None where no file says so.

    Raises:
        DataError: The file does not fit.
    """
    if config.users is None:
        return None
    return read_users(context.root or Path(), config.users, config.user_key, num_samples)


def raw_folder(name: str, context: LoadContext, parts: Sequence[str], fetch: str = "") -> Path:
    """Return the folder of a set, which has the images and labels of these parts, plain or packed.

    Args:
        name: The set, as torchvision calls it.
        context: Holds the root.
        parts: How the parts' files are named.
        fetch: What torchvision's class is given to fetch the set, beside the root.

    Raises:
        DataError: There is no root, or a file is missing; the message says how to get it.
    """
    if context.root is None:
        raise DataError(
            f"{name} is read from {name}/raw in a folder of data sets, and none is set: "
            "give data.root in the scenario, or set FEDSIM_DATA",
            setting="root",
        )
    raw = context.root / name / "raw"
    missing = [
        file for file in _files(parts) if not (raw / file).is_file() and not (raw / f"{file}.gz").is_file()
    ]
    if missing:
        raise DataError(
            f"{raw} lacks {', '.join(missing)} (each plain or with .gz): "
            f"copy the {len(_files(parts))} idx files of {name} there, or let torchvision fetch them: "
            f'torchvision.datasets.{name}("{context.root}", {fetch}download=True)',
            setting="root",
        )
    return raw


@contextmanager
def shown(raw: Path, name: str, parts: Sequence[str]) -> Iterator[str]:
    """Yield a root of torchvision's in which the files of ``raw`` are plain; it vanishes afterwards.

    Raises:
        DataError: A packed file is damaged.
    """
    with tempfile.TemporaryDirectory(prefix="fedsim-") as folder:
        view = Path(folder) / name / "raw"
        view.mkdir(parents=True)
        for file in _files(parts):
            _show(raw / file, view / file)
        yield folder


def read(
    name: str, root: str, raw: Path, part: str, **settings: Any
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return images (n, h, w) and labels (n,) of one part.

    Args:
        name: The set, as torchvision calls it.
        root: Where torchvision reads it.
        raw: Where the files really are, for the message.
        part: How the part's files are named.
        settings: What else torchvision's class is given.

    Raises:
        DataError: The files are no idx files of images and labels.
    """
    try:
        data = getattr(torchvision_datasets(), name)(root, download=False, **settings)
    except (AssertionError, KeyError, RuntimeError, TypeError, ValueError) as error:
        # torchvision checks the idx form with assertions, and finds a short file only when it reshapes.
        raise DataError(
            f"{raw / part}-* is no idx file of images and labels ({error}): fetch it again"
        ) from error
    return data.data.numpy(), data.targets.numpy().astype(np.int64)


def scaled(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return samples, float32 (n, 1, h, w) in [0, 1], from bytes (n, h, w)."""
    x = images.astype(np.float32, order="C")[:, None]
    x /= 255
    return x


def _files(parts: Sequence[str]) -> list[str]:
    return [f"{part}-{what}-ubyte" for part in parts for what in ("images-idx3", "labels-idx1")]


def _show(source: Path, target: Path) -> None:
    if source.is_file():
        target.symlink_to(source.resolve())
        return
    gz = source.with_name(f"{source.name}.gz")
    mend = f"Make room in {tempfile.gettempdir()}, or name another folder for temporary files in TMPDIR"
    with telling(gz, mend, doing="unpack"):
        try:
            with packed.opened(gz) as reader:
                target.write_bytes(packed.take_all(reader, MOST_BYTES))
        except (gzip.BadGzipFile, *packed.DAMAGES) as error:
            raise DataError(f"{gz} is damaged ({error}): fetch it again") from error
