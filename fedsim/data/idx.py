"""Reading sets of the MNIST family with torchvision, from a folder that may be read-only.

Such a set is four files in ``<root>/<Name>/raw``, plain or with ``.gz``. torchvision reads plain ones only,
and would unpack beside them; here they are unpacked into a temporary folder instead, and nothing is written
below the root.
"""

import gzip
import shutil
import tempfile
import zlib
from pathlib import Path

import numpy as np

from fedsim.data.base import Dataset, Labels, LoadContext, Samples
from fedsim.data.torchvision_compat import torchvision_datasets
from fedsim.errors import DataError
from fedsim.task import Task

FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def load(name: str, context: LoadContext) -> Dataset:
    """Return the set that torchvision calls ``name``: its train part, and its test part as the test part.

    Raises:
        DataError: No root, or files that are missing or damaged; the message says how to get them.
    """
    if context.root is None:
        raise DataError(
            f"{name} is read from {name}/raw in a folder of data sets, and none is set: "
            "give data.root in the scenario, or set FEDSIM_DATA",
            setting="root",
        )
    raw = context.root / name / "raw"
    missing = [file for file in FILES if not (raw / file).is_file() and not (raw / f"{file}.gz").is_file()]
    if missing:
        raise DataError(
            f"{raw} lacks {', '.join(missing)} (each plain or with .gz): "
            f"copy the four idx files of {name} there, "
            f'or let torchvision fetch them: torchvision.datasets.{name}("{context.root}", download=True)',
            setting="root",
        )
    with tempfile.TemporaryDirectory(prefix="fedsim-") as folder:
        view = Path(folder) / name / "raw"
        view.mkdir(parents=True)
        for file in FILES:
            _show(raw / file, view / file)
        x, y = _read(name, folder, raw, train=True)
        test_x, test_y = _read(name, folder, raw, train=False)
    return Dataset(Task(x.shape[1:], 10), x, y, test_x, test_y)


def _show(source: Path, target: Path) -> None:
    if source.is_file():
        target.symlink_to(source.resolve())
        return
    packed = source.with_name(f"{source.name}.gz")
    try:
        with gzip.open(packed) as reader, target.open("wb") as writer:
            shutil.copyfileobj(reader, writer)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{packed} is damaged ({error}): fetch it again") from error


def _read(name: str, root: str, raw: Path, *, train: bool) -> tuple[Samples, Labels]:
    try:
        part = getattr(torchvision_datasets(), name)(root, train=train, download=False)
    except (AssertionError, KeyError, RuntimeError, TypeError, ValueError) as error:
        # torchvision checks the idx form with assertions, and finds a short file only when it reshapes.
        which = "train-*" if train else "t10k-*"
        raise DataError(
            f"{raw / which} is no idx file of images and labels ({error}): fetch it again"
        ) from error
    x = part.data.numpy().astype(np.float32)[:, None]
    x /= 255
    return x, part.targets.numpy().astype(np.int64)
