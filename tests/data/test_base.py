"""What a data set may and may not be."""

from typing import Any

import numpy as np
import pytest

from fedsim.data.base import Dataset
from fedsim.errors import DataError
from fedsim.task import Task

TASK = Task((2,), 3)


def arrays(n: int = 4) -> dict[str, Any]:
    return {"x": np.zeros((n, 2), np.float32), "y": np.arange(n, dtype=np.int64) % 3}


def test_its_arrays_become_read_only() -> None:
    dataset = Dataset(TASK, **arrays(), test_x=np.ones((1, 2), np.float32), test_y=np.array([2]))
    for array in (dataset.x, dataset.y, dataset.test_x, dataset.test_y):
        assert array is not None
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_counts_become_read_only() -> None:
    dataset = Dataset(TASK, sizes=np.array([3, 0]))
    assert dataset.sizes is not None
    with pytest.raises(ValueError, match="read-only"):
        dataset.sizes[0] = 1


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({}, "never both or neither"),
        ({**arrays(), "sizes": np.array([1])}, "never both or neither"),
        ({"x": np.zeros((4, 2), np.float32)}, "x and y come together"),
        ({**arrays(), "test_y": np.array([1])}, "test_x and test_y come together"),
        ({**arrays(), "x": np.zeros((4, 2))}, "x is float64"),
        ({**arrays(), "x": np.zeros((4, 3), np.float32)}, r"wants float32 \(n, 2\)"),
        ({**arrays(), "y": np.zeros(3, np.int64)}, "one label a sample"),
        ({**arrays(), "y": np.zeros(4, np.int32)}, "y is int32"),
        ({**arrays(), "y": np.array([0, 1, 2, 3])}, "labels 0 to 3, 3 classes are numbered 0 to 2"),
        ({**arrays(), "y": np.array([0, 1, -1, 2])}, "labels -1 to 2"),
        ({"sizes": np.array([1.0])}, "one int64"),
        ({"sizes": np.array([-1])}, "at least 0"),
        ({"sizes": np.array([1]), **{f"test_{k}": v for k, v in arrays().items()}}, "no test_x"),
    ],
)
def test_what_breaks_the_rules_is_refused(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        Dataset(TASK, **fields)
