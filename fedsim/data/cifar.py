"""Reading CIFAR-10 and CIFAR-100 with torchvision, from the folder that their archive unpacks to.

Their files are pickles, which can run code when they are opened. torchvision compares each file with its
official checksum first, so only the official files are ever opened; nothing is written.
"""

import numpy as np
from numpy.typing import NDArray

from fedsim.data.base import Dataset, LoadContext
from fedsim.data.torchvision_datasets import torchvision_datasets
from fedsim.errors import DataError
from fedsim.task import Task


def load(name: str, context: LoadContext) -> Dataset:
    """Return the set that torchvision calls ``name``: its train part, and its test part as the test part.

    Raises:
        DataError: No root, or files that are missing or not the official ones; the message says how to get
            them.
    """
    kind = getattr(torchvision_datasets(), name)
    if context.root is None:
        raise DataError(
            f"{name} is read from {kind.base_folder} in a folder of data sets, and none is set: "
            "give data.root in the scenario, or set FEDSIM_DATA",
            setting="root",
        )
    folder = context.root / kind.base_folder
    files = [name for name, _ in (*kind.train_list, *kind.test_list)] + [kind.meta["filename"]]
    missing = [file for file in files if not (folder / file).is_file()]
    how = (
        f"unpack {kind.filename} in {context.root}, "
        f'or let torchvision fetch it: torchvision.datasets.{name}("{context.root}", download=True)'
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
    (x, y), (test_x, test_y) = ((_scaled(p.data), np.array(p.targets, np.int64)) for p in parts)
    return Dataset(Task(x.shape[1:], len(parts[0].classes)), x, y, test_x, test_y)


def _scaled(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return float32 (n, 3, 32, 32) in [0, 1] from bytes (n, 32, 32, 3)."""
    x = np.moveaxis(images, -1, 1).astype(np.float32, order="C")
    x /= 255
    return x
