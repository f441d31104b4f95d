"""The base of data sets: arrays in memory, or only sample counts.

Letters for shapes: n samples, K clients, N classes, V tokens. Images are float32 in [0, 1], channels first;
texts are int64 tokens in [0, V). Labels are int64 in [0, N), or the float32 targets of a regression. Arrays
are values: they are made read-only when the data set is made.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedsim.errors import DataError
from fedsim.input_paths import located
from fedsim.plugins import C, Plugin
from fedsim.rng import Key
from fedsim.task import Task
from fedsim.units import format_quantity

Samples: TypeAlias = NDArray[np.float32] | NDArray[np.int64]
Labels: TypeAlias = NDArray[np.int64] | NDArray[np.float32]
Counts: TypeAlias = NDArray[np.int64]
Indices: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """A pool of labelled samples, or only how many training samples each client has.

    Attributes:
        task: Shape and type of one sample and of its label, and the number N of classes.
        x: ``(n, *input_shape)`` of the task's ``dtype``: float32, or int64 tokens, each in [0, V), where the
            task has a vocabulary of V; None where there are counts only.
        y: (n,) of the task's ``label_dtype``: int64, each in [0, N), or, for a regression, finite float32;
            None where there are counts only.
        test_x: The data set's own test part, as ``x``; None where it has none.
        test_y: Labels of the test part, as ``y``.
        sizes: int64 (K,), training samples of each client; None where there are arrays.
        users: int64 (n,), the user who made each sample of ``x``, numbered from 0, for natural partitions.
            None if that is not known, or if there are counts only.
        standardise: Whether each scalar of a sample gets mean 0 and standard deviation 1 over the clients'
            training samples, once these are known.
        class_names: What each of the N classes is called, for tables; None if they have numbers only.

    Raises:
        DataError: Neither or both of arrays and counts; a dtype, shape or label that breaks the rules above.
    """

    task: Task
    x: Samples | None = None
    y: Labels | None = None
    test_x: Samples | None = None
    test_y: Labels | None = None
    sizes: Counts | None = None
    users: NDArray[np.int64] | None = None
    standardise: bool = False
    class_names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if (self.x is None) == (self.sizes is None):
            raise DataError(
                "a data set has either samples (x and y) or counts (sizes), never both or neither"
            )
        for prefix, x, y in (("", self.x, self.y), ("test_", self.test_x, self.test_y)):
            if (x is None) != (y is None):
                raise DataError(f"{prefix}x and {prefix}y come together: give both or neither")
            if x is not None and y is not None:
                self._check(x, y, f"{prefix}x", f"{prefix}y")
        if self.class_names is not None and len(self.class_names) != self.task.num_outputs:
            raise DataError(f"{len(self.class_names)} names for {self.task.num_outputs} classes")
        if self.sizes is not None:
            if self.test_x is not None or self.users is not None:
                raise DataError(
                    "a data set of counts only has no test_x, no test_y and no users: its clients are the "
                    "positions of sizes"
                )
            if self.sizes.ndim != 1 or self.sizes.dtype != np.int64 or (self.sizes < 0).any():
                raise DataError("sizes must hold one int64 of at least 0 for each client")
        if self.x is not None and self.users is not None:
            if self.users.dtype != np.int64 or self.users.shape != self.x.shape[:1]:
                raise DataError(
                    f"users is {self.users.dtype} {self.users.shape}, "
                    f"but must be int64 ({len(self.x)},), one user for each sample of x"
                )
            if (self.users < 0).any():
                raise DataError(f"users holds {self.users.min()}, but users are numbered from 0")
        for array in (self.x, self.y, self.test_x, self.test_y, self.sizes, self.users):
            if array is not None:
                array.flags.writeable = False

    def _check(self, x: Samples, y: Labels, x_name: str, y_name: str) -> None:
        if x.dtype != self.task.dtype or x.shape[1:] != self.task.input_shape:
            wanted = f"{self.task.dtype} (n, {', '.join(map(str, self.task.input_shape))})"
            raise DataError(f"{x_name} is {x.dtype} {x.shape}, but the task needs {wanted}")
        if self.task.vocabulary:
            self._check_range(x, x_name, "tokens", self.task.vocabulary)
        if y.dtype != self.task.label_dtype or y.shape != x.shape[:1]:
            raise DataError(
                f"{y_name} is {y.dtype} {y.shape}, "
                f"but must be {self.task.label_dtype} ({len(x)},), one label for each sample"
            )
        if self.task.kind == "classification":
            self._check_range(y, y_name, "labels", self.task.num_outputs, "classes")
        elif not np.isfinite(y).all():
            at = int(np.flatnonzero(~np.isfinite(y))[0])
            raise DataError(
                f"{y_name} holds {y[at]} at position {at}, but targets of a regression must be finite"
            )

    @staticmethod
    def _check_range(values: Samples | Labels, name: str, what: str, end: int, plural: str = "") -> None:
        if values.size and not 0 <= int(values.min()) <= int(values.max()) < end:
            raise DataError(
                f"{name} holds {what} {values.min()} to {values.max()}, "
                f"but {end} {plural or what} are numbered 0 to {end - 1}"
            )


@dataclass(frozen=True, slots=True)
class LoadContext:
    """What a data set may use while it is loaded.

    Attributes:
        root: Folder of data sets (``data.root`` of the scenario, or FEDSIM_DATA); None if neither is set.
        num_clients: Clients of the run.
        key: Randomness of this data set.
    """

    root: Path | None
    num_clients: int
    key: Key

    def path(self, written: str) -> Path:
        """Return where a file or folder is that a setting of type :data:`fedsim.input_paths.DataPath` names.

        Raises:
            DataError: It is in none of the folders in which it is looked for; the message lists them.
        """
        return located(written, self.root)

    def folder(self, name: str, below: str) -> Path:
        """Return a folder below the root.

        Args:
            name: The data set that is read from it, for the message.
            below: Its path below the root.

        Raises:
            DataError: There is no root.
        """
        if self.root is None:
            raise DataError(
                f"{name} is read from {below} in the folder of data sets, which is not set: "
                "give data.root in the scenario, or set FEDSIM_DATA",
                setting="root",
            )
        return self.root / below


@contextmanager
def blamed(setting: str) -> Iterator[None]:
    """Name ``setting`` as the one to change in each :class:`DataError` of the block that names none."""
    try:
        yield
    except DataError as error:
        raise DataError(str(error), setting=error.setting or setting) from error.__cause__


def room(shape: tuple[int, ...], dtype: type[np.generic], lower: str) -> NDArray[Any]:
    """Return a new array, its values not set, for samples that a data set draws."""
    try:
        return np.empty(shape, dtype)
    except (MemoryError, ValueError, OverflowError) as error:
        # NumPy raises ValueError if the number of bytes does not fit into an integer.
        wanted = format_quantity(float(math.prod(shape) * np.dtype(dtype).itemsize), "data size")
        raise DataError(
            f"its samples, {' x '.join(map(str, shape))} numbers, take {wanted}, more than there is "
            f"memory for: lower {lower}"
        ) from error


class DatasetPlugin(Plugin[C], ABC):
    """Base of the data sets.

    Attributes:
        has_samples: Whether it gives samples; False for one that gives counts only.
        origin: Names of the settings that determine which samples these are, while the others determine only
            their form; None for all settings. Data sets that agree in these may have the same samples, so
            neither can be the source of the public set for the other.
    """

    has_samples: ClassVar[bool] = True
    origin: ClassVar[tuple[str, ...] | None] = None

    @abstractmethod
    def load(self, context: LoadContext) -> Dataset:
        """Return the data set; equal settings, context and files give equal arrays.

        Raises:
            DataError: The data is missing, damaged, or not what the settings say.
        """
