"""What a data set may and may not be."""

from typing import Any

import numpy as np
import pytest

from fedsim.data.base import Dataset
from fedsim.errors import DataError
from fedsim.task import Task
from tests.conftest import there
from tests.data.conftest import held

TASK = Task((2,), 3)
TEXT = Task((2,), 3, vocabulary=5)
REGRESSION = Task((2,), 1, "regression")


def arrays(n: int = 4) -> dict[str, Any]:
    return {"x": np.zeros((n, 2), np.float32), "y": np.arange(n, dtype=np.int64) % 3}


def test_its_arrays_become_read_only() -> None:
    dataset = Dataset(TASK, **arrays(), test_x=np.ones((1, 2), np.float32), test_y=np.array([2]))
    for array in (dataset.x, dataset.y, dataset.test_x, dataset.test_y):
        with pytest.raises(ValueError, match="read-only"):
            held(array)[0] = 1


def test_counts_become_read_only() -> None:
    dataset = Dataset(TASK, sizes=np.array([3, 0]))
    with pytest.raises(ValueError, match="read-only"):
        there(dataset.sizes)[0] = 1


def test_users_become_read_only() -> None:
    dataset = Dataset(TASK, **arrays(), users=np.array([7, 0, 7, 7]))
    with pytest.raises(ValueError, match="read-only"):
        there(dataset.users)[0] = 1


def test_a_text_has_tokens() -> None:
    tokens = np.array([[0, 4], [1, 2]])
    y = np.array([0, 2])
    assert Dataset(TEXT, tokens, y).x is tokens
    with pytest.raises(DataError, match=r"x is float32 .*needs int64 \(n, 2\)"):
        Dataset(TEXT, tokens.astype(np.float32), y)
    with pytest.raises(DataError, match="x holds tokens 0 to 5, but 5 tokens are numbered 0 to 4"):
        Dataset(TEXT, np.array([[0, 5], [1, 2]]), y)
    with pytest.raises(DataError, match="test_x holds tokens -1 to 2"):
        Dataset(TEXT, tokens, y, np.array([[-1, 2]]), y[:1])


def test_a_regression_has_finite_targets() -> None:
    x, y = np.zeros((3, 2), np.float32), np.array([-0.5, 1e9, 0], np.float32)
    assert Dataset(REGRESSION, x, y).y is y
    with pytest.raises(DataError, match=r"y is int64 .*must be float32"):
        Dataset(REGRESSION, x, np.array([0, 1, 2]))
    with pytest.raises(DataError, match=r"y holds nan at position 1, but targets .* must be finite"):
        Dataset(REGRESSION, x, np.array([0, np.nan, np.inf], np.float32))


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({}, "never both or neither"),
        ({**arrays(), "sizes": np.array([1])}, "never both or neither"),
        ({"x": np.zeros((4, 2), np.float32)}, "x and y come together"),
        ({**arrays(), "test_y": np.array([1])}, "test_x and test_y come together"),
        ({**arrays(), "x": np.zeros((4, 2))}, "x is float64"),
        ({**arrays(), "x": np.zeros((4, 3), np.float32)}, r"needs float32 \(n, 2\)"),
        ({**arrays(), "y": np.zeros(3, np.int64)}, "one label for each sample"),
        ({**arrays(), "y": np.zeros(4, np.int32)}, "y is int32"),
        ({**arrays(), "y": np.array([0, 1, 2, 3])}, "labels 0 to 3, but 3 classes are numbered 0 to 2"),
        ({**arrays(), "y": np.array([0, 1, -1, 2])}, "labels -1 to 2"),
        ({**arrays(), "users": np.zeros(3, np.int64)}, "one user for each sample"),
        ({**arrays(), "users": np.zeros(4, np.int32)}, "users is int32"),
        ({**arrays(), "users": np.array([0, 1, -2, 3])}, "users holds -2"),
        (
            {"sizes": np.array([1]), "users": np.array([1])},
            "counts only has no test_x, no test_y and no users",
        ),
        ({**arrays(), "class_names": ("a", "b")}, "2 names for 3 classes"),
        ({"sizes": np.array([1.0])}, "one int64"),
        ({"sizes": np.array([-1])}, "at least 0"),
        ({"sizes": np.array([1]), **{f"test_{k}": v for k, v in arrays().items()}}, "no test_x"),
    ],
)
def test_what_breaks_the_rules_is_refused(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        Dataset(TASK, **fields)
