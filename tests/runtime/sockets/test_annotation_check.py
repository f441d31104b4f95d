from collections.abc import Mapping
from typing import Any, Literal, TypeVar

import numpy as np
import pytest

from fedsim.runtime.sockets.annotation_check import fits

T = TypeVar("T", bound=int)


@pytest.mark.parametrize(
    ("hint", "good", "bad"),
    [
        (int, [1], [True]),
        (bool, [True], [1]),
        (float, [1, np.float32(1)], ["1"]),
        (int | None, [None], ["x"]),
        (Literal["a", "b"], ["a"], ["c"]),
        (tuple[int, ...], [(1, 2)], [(1, "2")]),
        (tuple[int, str], [(1, "2")], [(1,)]),
        (Mapping[str, int], [{"a": 1}], [{1: 1}]),
        (np.ndarray[Any, np.dtype[np.float64]], [np.zeros(1)], [np.zeros(1, np.int64)]),
        (np.ndarray[Any, Any], [np.zeros(1)], [1]),
        (T, [1], ["x"]),
        (Any, [object()], []),
    ],
)
def test_annotations(hint: Any, good: list[Any], bad: list[Any]) -> None:
    assert [fits(value, hint) for value in (*good, *bad)] == [True] * len(good) + [False] * len(bad)
