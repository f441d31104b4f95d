from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedsim.params import Tree
from fedsim.runtime.finite import non_finite
from fedsim.wire import Message, message


@message("mixed")
class Mixed(Message):
    values: NDArray[np.float32]
    tree: Tree
    numbers: NDArray[np.int64]
    share: float
    label: str
    maybe: NDArray[np.float64] | None = None


def _mixed(**changes: Any) -> Mixed:
    fields: dict[str, Any] = {
        "values": np.zeros(2, np.float32),
        "tree": {"w": np.zeros((2, 2), np.float32), "steps": np.array(3)},
        "numbers": np.array([2**62]),
        "share": 0.5,
        "label": "nan",
    }
    return Mixed(**{**fields, **changes})


def test_finite_messages_pass() -> None:
    assert non_finite(_mixed()) is None
    assert non_finite(_mixed(maybe=np.zeros(0), values=np.zeros(0, np.float32))) is None


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_the_first_field_that_is_not_finite_is_named(bad: float) -> None:
    array = np.array([0.0, bad])
    assert non_finite(_mixed(values=array.astype(np.float32))) == "values"
    assert non_finite(_mixed(tree={"a": np.zeros(1), "b": array})) == "tree"
    assert non_finite(_mixed(share=float(bad))) == "share"
    assert non_finite(_mixed(maybe=array)) == "maybe"
    assert non_finite(_mixed(share=float(bad), values=array.astype(np.float32))) == "values"
