"""EMNIST: up to 814,255 grey images of 28 by 28, handwritten digits and letters.

The files store images with rows and columns exchanged; loading turns them upright.
"""

from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedsim.config import AsTuple
from fedsim.data import mnist_family
from fedsim.data.base import Dataset, DatasetPlugin, Indices, LoadContext
from fedsim.data.file_readers import read_users, scaled
from fedsim.errors import DataError
from fedsim.quoting import quoted
from fedsim.ranges import Classes
from fedsim.task import Task
from fedsim.torchvision_compat import torchvision_module


class EmnistConfig(mnist_family.IdxConfig):
    """Settings of EMNIST."""

    split: Literal["byclass", "bymerge", "balanced", "letters", "digits", "mnist"] = "letters"
    """Which of its six sets: ``byclass`` has 62 classes, ``bymerge`` and ``balanced`` 47 (capitals and small
    letters that look alike are one), ``letters`` 26 (capitals and small letters are one), ``digits`` and
    ``mnist`` 10."""
    classes: Classes | Annotated[tuple[str, ...], AsTuple, Field(min_length=1)] | None = None
    """Classes to keep: a number keeps the first ones, and a list such as ``["a", "b"]`` keeps those named and
    numbers them in this order; without it, all are kept."""


class Emnist(DatasetPlugin[EmnistConfig]):
    """EMNIST, from ``EMNIST/raw`` below the root."""

    Config = EmnistConfig
    origin = ()  # its splits share images, and a class may be in several of them under other names

    def load(self, context: LoadContext) -> Dataset:
        """Return both parts, samples of shape (1, 28, 28), classes numbered from 0."""
        split = self.config.split
        names = torchvision_module("datasets").EMNIST.classes_split_dict[split]
        chosen = self._chosen(names)
        number = np.full(len(names), -1)
        number[chosen] = np.arange(len(chosen))

        parts = (f"emnist-{split}-train", f"emnist-{split}-test")
        train, test = mnist_family.read("EMNIST", context, parts, f'"{split}", ')
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


PLUGIN = Emnist
