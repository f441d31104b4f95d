from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fedsim.plain import scalar


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.int64(3), 3),
        (np.float32(0.5), 0.5),
        (np.array(True), True),
        (torch.tensor(2.0), 2.0),
        (float("nan"), None),
        (np.float64("-inf"), None),
        ("text", "text"),
        (None, None),
        (False, False),
    ],
)
def test_scalars_become_plain(value: Any, expected: Any) -> None:
    found = scalar(value)
    assert type(found) is type(expected)
    assert found == expected


def test_what_is_no_scalar_stays_itself() -> None:
    values: list[Any] = [[1.0], np.arange(1), {}]
    for value in values:
        assert scalar(value) is value
