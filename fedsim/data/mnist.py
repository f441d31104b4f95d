"""The MNIST family: idx files in ``<root>/<Name>/raw``, each plain or with ``.gz``, read in place."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedsim.config import AsTuple, Config
from fedsim.data.base import Dataset, DatasetPlugin, Indices, LoadContext
from fedsim.data.file_readers import read_array, read_users, scaled
from fedsim.errors import DataError
from fedsim.input_paths import DataPath
from fedsim.quoting import quoted
from fedsim.ranges import Classes
from fedsim.task import Task
from fedsim.torchvision_compat import torchvision_module


class IdxConfig(Config):
    """Settings of a set whose images may have known writers."""

    users: DataPath | None = None
    """File of integers from 0: the user who made each image of the train part (.npz, .npy or .npy.xz), for a
    natural partition."""
    user_key: str = "users"
    """Name of the array of users in a .npz."""


class Idx(DatasetPlugin[IdxConfig]):
    """Base of the sets of ten classes in this form."""

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
    pairs = []
    for part, images_file, labels_file in zip(parts, files[::2], files[1::2], strict=True):
        images, labels = _array(images_file, 3), _array(labels_file, 1)
        if len(images) != len(labels):
            raise DataError(
                f"{raw / part}-* hold {len(images)} images and {len(labels)} labels: fetch them again"
            )
        pairs.append((images, labels.astype(np.int64)))
    return pairs


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


class Mnist(Idx):
    """MNIST: 60,000 + 10,000 grey images of 28 by 28, handwritten digits."""

    name = "MNIST"


class FashionMnist(Idx):
    """Fashion-MNIST: 60,000 + 10,000 grey images of 28 by 28, ten kinds of clothing."""

    name = "FashionMNIST"
    class_names = (
        *("T-shirt/top", "trouser", "pullover", "dress", "coat"),
        *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
    )


class EmnistConfig(IdxConfig):
    """Settings of EMNIST."""

    split: Literal["byclass", "bymerge", "balanced", "letters", "digits", "mnist"] = "letters"
    """Which of its six sets: ``byclass`` has 62 classes, ``bymerge`` and ``balanced`` 47 (capitals and small
    letters that look alike are one), ``letters`` 26 (capitals and small letters are one), ``digits`` and
    ``mnist`` 10."""
    classes: Classes | Annotated[tuple[str, ...], AsTuple, Field(min_length=1)] | None = None
    """Classes to keep: a number keeps the first ones, and a list such as ``["a", "b"]`` keeps those named and
    numbers them in this order; without it, all are kept."""


class Emnist(DatasetPlugin[EmnistConfig]):
    """EMNIST: up to 814,255 grey images of 28 by 28, handwritten digits and letters.

    The files store images with rows and columns exchanged; loading turns them upright.
    """

    origin = ()  # its splits share images, and a class may be in several of them under other names

    def load(self, context: LoadContext) -> Dataset:
        """Return both parts, samples of shape (1, 28, 28), classes numbered from 0."""
        split = self.config.split
        names = torchvision_module("datasets").EMNIST.classes_split_dict[split]
        chosen = self._chosen(names)
        number = np.full(len(names), -1)
        number[chosen] = np.arange(len(chosen))

        parts = (f"emnist-{split}-train", f"emnist-{split}-test")
        train, test = read("EMNIST", context, parts, f'"{split}", ')
        x, y, kept = self._part(*train, parts[0], number)
        test_x, test_y, _ = self._part(*test, parts[1], number)
        users = read_users(context, self.config.users, self.config.user_key, len(kept))
        if users is not None:
            users = users[kept]
        kept_names = tuple(names[label] for label in chosen)
        task = Task(x.shape[1:], len(chosen))
        return Dataset(task, x, y, test_x, test_y, users=users, class_names=kept_names)

    def _part(
        self, images: NDArray[np.uint8], labels: Indices, part: str, number: Indices
    ) -> tuple[NDArray[np.float32], Indices, NDArray[np.bool_]]:
        """Return x and y of the samples that are kept, and a mask of these among the stored samples."""
        if labels.size and labels.max() >= len(number):
            raise DataError(
                f"{part}-labels-idx1-ubyte holds the label {labels.max()}, "
                f"but those of split {self.config.split!r} end at {len(number) - 1}: fetch it again"
            )
        y = number[labels]
        kept = y >= 0
        return scaled(images[kept].swapaxes(1, 2))[:, None], y[kept], kept

    def _chosen(self, names: list[str]) -> list[int]:
        """Return the labels that are kept, in the order of their new numbers."""
        # The split of letters numbers its classes from 1; its class 0, "N/A", never occurs.
        there = {name: label for label, name in enumerate(names) if name != "N/A"}
        classes = self.config.classes
        what = f"split {quoted(self.config.split)} has {len(there)} classes, {', '.join(there)}"
        if not isinstance(classes, tuple):
            if classes is not None and classes > len(there):
                raise DataError(f"classes = {classes}: {what}; ask for at most that many", setting="classes")
            return list(there.values())[:classes]
        unknown = [name for name in classes if name not in there]
        if unknown or len(set(classes)) < len(classes):
            problem = f"no class {quoted(unknown[0])}" if unknown else "a class is named twice"
            raise DataError(
                f"classes = {list(classes)}: {problem}; {what}, name each at most once", setting="classes"
            )
        return [there[name] for name in classes]


PLUGINS = {"mnist": Mnist, "fashion_mnist": FashionMnist, "emnist": Emnist}
