"""What a data set is: arrays in memory, or nothing but sample counts.

Letters for shapes: n samples, K clients, N classes. Images are float32 in [0, 1], channels first; labels are
int64 in [0, N). Arrays are values: they are made read-only when the data set is made.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedsim.errors import DataError
from fedsim.plugins import C, Plugin
from fedsim.rng import Key
from fedsim.task import Task

Samples: TypeAlias = NDArray[np.float32]
Labels: TypeAlias = NDArray[np.int64]
Counts: TypeAlias = NDArray[np.int64]
Indices: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """A pool of labelled samples, or only how many training samples each client has.

    Attributes:
        task: Shape of one sample, and the number N of classes.
        x: float32 (n, *input_shape); None where there are counts only.
        y: int64 (n,), each in [0, N); None where there are counts only.
        test_x: The data set's own test part, as ``x``; None where it has none.
        test_y: Labels of the test part, as ``y``.
        sizes: int64 (K,), training samples of each client; None where there are arrays.

    Raises:
        DataError: Neither or both of arrays and counts; a dtype, shape or label that breaks the rules above.
    """

    task: Task
    x: Samples | None = None
    y: Labels | None = None
    test_x: Samples | None = None
    test_y: Labels | None = None
    sizes: Counts | None = None

    def __post_init__(self) -> None:
        if (self.x is None) == (self.sizes is None):
            raise DataError(
                "a data set has either samples (x and y) or counts (sizes), never both or neither"
            )
        self._check(self.x, self.y, "x", "y")
        self._check(self.test_x, self.test_y, "test_x", "test_y")
        if self.sizes is not None:
            if self.test_x is not None:
                raise DataError("a data set of counts only has no test_x and no test_y")
            if self.sizes.ndim != 1 or self.sizes.dtype != np.int64 or (self.sizes < 0).any():
                raise DataError("sizes holds one int64 of at least 0 for each client")
            self.sizes.flags.writeable = False

    def _check(self, x: Samples | None, y: Labels | None, x_name: str, y_name: str) -> None:
        if x is None or y is None:
            if (x is None) != (y is None):
                raise DataError(f"{x_name} and {y_name} come together: give both or neither")
            return
        if x.dtype != np.float32 or x.shape[1:] != self.task.input_shape:
            wanted = f"float32 (n, {', '.join(map(str, self.task.input_shape))})"
            raise DataError(f"{x_name} is {x.dtype} {x.shape}, the task wants {wanted}")
        if y.dtype != np.int64 or y.shape != x.shape[:1]:
            raise DataError(
                f"{y_name} is {y.dtype} {y.shape}, it has to be int64 ({len(x)},), one label a sample"
            )
        if len(y) and not 0 <= int(y.min()) <= int(y.max()) < self.task.num_outputs:
            raise DataError(
                f"{y_name} holds labels {y.min()} to {y.max()}, "
                f"{self.task.num_outputs} classes are numbered 0 to {self.task.num_outputs - 1}"
            )
        x.flags.writeable = False
        y.flags.writeable = False


@dataclass(frozen=True, slots=True)
class LoadContext:
    """What a data set may ask for while it is loaded.

    Attributes:
        root: Folder of data sets (``data.root`` of the scenario, or FEDSIM_DATA); None where neither is set.
        num_clients: Clients of the run.
        key: Randomness of this data set.
    """

    root: Path | None
    num_clients: int
    key: Key


class DatasetPlugin(Plugin[C], ABC):
    """Base of the data sets.

    Attributes:
        has_samples: Whether it gives samples; False for one that gives counts only.
    """

    has_samples: ClassVar[bool] = True

    @abstractmethod
    def load(self, context: LoadContext) -> Dataset:
        """Return the data set; equal settings, context and files give equal arrays.

        Raises:
            DataError: The data is missing, damaged, or not what the settings say.
        """
