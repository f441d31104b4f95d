"""Reading CIFAR-10 and CIFAR-100 with torchvision, from the folder that their archive unpacks to.

Their files are pickles, which can run code when they are opened. torchvision compares each file with its
official checksum first, so only the official files are ever opened; nothing is written.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fedsim.config import Config
from fedsim.data.base import Dataset, DatasetPlugin, LoadContext
from fedsim.data.file_readers import scaled
from fedsim.errors import DataError
from fedsim.task import Task
from fedsim.torchvision_compat import torchvision_module


class Cifar(DatasetPlugin[Config]):
    """Base of both sets."""

    name: ClassVar[str]

    def load(self, context: LoadContext) -> Dataset:
        """Return both parts, samples of shape (3, 32, 32)."""
        kind = getattr(torchvision_module("datasets"), self.name)
        folder = context.folder(self.name, kind.base_folder)
        files = [file for file, _ in (*kind.train_list, *kind.test_list)] + [kind.meta["filename"]]
        missing = [file for file in files if not (folder / file).is_file()]
        how = (
            f"unpack {kind.filename} in {context.root}, "
            f'or let torchvision fetch it: torchvision.datasets.{self.name}("{context.root}", download=True)'
        )
        if missing:
            raise DataError(f"{folder} lacks {', '.join(missing)}: {how}", setting="root")
        try:
            parts = [kind(context.root, train=train, download=False) for train in (True, False)]
        except RuntimeError as error:
            raise DataError(
                f"a file of {folder} is not the official one, whose checksum torchvision knows: {how}",
                setting="root",
            ) from error
        (x, y), (test_x, test_y) = (
            (scaled(np.moveaxis(part.data, -1, 1)), np.array(part.targets, np.int64)) for part in parts
        )
        names = tuple(parts[0].classes)
        return Dataset(Task(x.shape[1:], len(names)), x, y, test_x, test_y, class_names=names)


class Cifar10(Cifar):
    """CIFAR-10: 50,000 + 10,000 colour images of 32 by 32, animals and vehicles."""

    name = "CIFAR10"


class Cifar100(Cifar):
    """CIFAR-100: 50,000 + 10,000 colour images of 32 by 32, a hundred kinds of things."""

    name = "CIFAR100"


PLUGINS = {"cifar10": Cifar10, "cifar100": Cifar100}
