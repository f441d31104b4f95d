"""Sets of the MNIST family: idx files in ``<root>/<Name>/raw``, each plain or with ``.gz``, read in place."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedsim.config import Config
from fedsim.data.base import Dataset, DatasetPlugin, LoadContext
from fedsim.data.file_readers import read_array, read_users, scaled
from fedsim.errors import DataError
from fedsim.input_paths import DataPath
from fedsim.task import Task


class IdxConfig(Config):
    """Settings of a set whose images may have known writers."""

    users: DataPath | None = None
    """File of integers from 0: the user who made each image of the train part (.npz, .npy or .npy.xz), for a
    natural partition."""
    user_key: str = "users"
    """Name of the array of users in a .npz."""


class Idx(DatasetPlugin[IdxConfig]):
    """Base of the sets of ten classes in this form."""

    Config = IdxConfig
    origin = ()
    name: ClassVar[str]
    class_names: ClassVar[tuple[str, ...] | None] = None

    def load(self, context: LoadContext) -> Dataset:
        """Return both parts, samples of shape (1, 28, 28)."""
        (images, y), (test_images, test_y) = read(self.name, context, ("train", "t10k"))
        x, test_x = scaled(images)[:, None], scaled(test_images)[:, None]
        users = read_users(context, self.config.users, self.config.user_key, len(x))
        task = Task(x.shape[1:], 10)
        return Dataset(task, x, y, test_x, test_y, users=users, class_names=self.class_names)


def read(
    name: str, context: LoadContext, parts: Sequence[str], fetch: str = ""
) -> list[tuple[NDArray[np.uint8], NDArray[np.int64]]]:
    """Return images, bytes (n, h, w), and labels (n,) of each part."""
    raw = context.folder(name, f"{name}/raw")
    files = [raw / f"{part}-{what}-ubyte" for part in parts for what in ("images-idx3", "labels-idx1")]
    missing = [file.name for file in files if not file.is_file() and not _packed(file).is_file()]
    if missing:
        raise DataError(
            f"{raw} lacks {', '.join(missing)} (each plain or with .gz): "
            f"copy the {len(files)} idx files of {name} there, or let torchvision fetch them: "
            f'torchvision.datasets.{name}("{context.root}", {fetch}download=True)',
            setting="root",
        )
    found = []
    for part, images_file, labels_file in zip(parts, files[::2], files[1::2], strict=True):
        images, labels = _array(images_file, 3), _array(labels_file, 1)
        if len(images) != len(labels):
            raise DataError(
                f"{raw / part}-* hold {len(images)} images and {len(labels)} labels: fetch them again"
            )
        found.append((images, labels.astype(np.int64)))
    return found


def _array(file: Path, num_axes: int) -> NDArray[np.uint8]:
    path = file if file.is_file() else _packed(file)
    try:
        array = read_array(path, "", "")
    except DataError as error:
        raise DataError(f"{error}: fetch it again") from error
    if array.ndim != num_axes:
        raise DataError(
            f"{path} holds an array of shape {array.shape}, but should have {num_axes} axes: fetch it again"
        )
    return array


def _packed(file: Path) -> Path:
    return file.with_name(f"{file.name}.gz")
