from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
import pytest

from fedsim.runtime.sockets.annotation_check import fits, hints_of

T = TypeVar("T", bound=int)


@pytest.mark.parametrize(
    ("value", "hint", "whether"),
    [
        (1, int, True),
        (True, int, False),
        (True, bool, True),
        (1, float, True),
        (np.float32(1), float, True),
        ("1", float, False),
        (None, int | None, True),
        ("x", int | None, False),
        ("a", Literal["a", "b"], True),
        ("c", Literal["a", "b"], False),
        ((1, 2), tuple[int, ...], True),
        ((1, "2"), tuple[int, ...], False),
        ((1, "2"), tuple[int, str], True),
        ((1,), tuple[int, str], False),
        ({"a": 1}, Mapping[str, int], True),
        ({1: 1}, Mapping[str, int], False),
        (np.zeros(1), np.ndarray[Any, np.dtype[np.float64]], True),
        (np.zeros(1), np.ndarray[Any, np.dtype[np.int64]], False),
        (np.zeros(1), np.ndarray[Any, Any], True),
        (1, np.ndarray[Any, Any], False),
        (1, T, True),
        ("x", T, False),
        (object(), Any, True),
    ],
)
def test_annotations(value: Any, hint: Any, whether: bool) -> None:
    assert fits(value, hint) is whether


def test_annotations_that_cannot_be_resolved_are_none() -> None:
    cls: Any = dataclass(frozen=True)(type("Odd", (), {"__annotations__": {"x": "Nowhere"}}))
    assert hints_of(cls) == {}
