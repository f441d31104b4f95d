from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.errors import InvariantError
from fedsim.params import Form, PendingTree
from fedsim.runtime.purity import fingerprint, unchanged


@dataclass
class Record:
    values: Any
    name: str = "a"


def test_equal_values_have_equal_fingerprints() -> None:
    def value() -> Any:
        return Record({"w": np.arange(3), "nested": [Record((1, 2.5, None, "x", b"y"))]})

    assert fingerprint(value()) == fingerprint(value())
    tree = {"w": np.arange(3)}
    inner = PendingTree(Form.of(tree), lambda: tree)
    assert fingerprint(PendingTree(inner.form, lambda: inner)) == fingerprint(tree)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (1, 2),
        (1, 1.0),
        (1, True),
        ("ab", b"ab"),
        ([1, 2], (1, 2)),
        ([1, 2], [2, 1]),
        ([[1], 2], [[1, 2]]),
        ([[], 1], [[1]]),
        ({"a": 1}, {"b": 1}),
        (np.zeros(2), np.zeros(2, np.float32)),
        (np.zeros(4), np.zeros((2, 2))),
        (np.zeros(2), np.array([0.0, -0.0])),
        (Record(1), Record(2)),
        (Record(1), Record(1, "b")),
        ([Record({"w": np.zeros(2)})], [Record({"w": np.array([0.0, 1.0])})]),
    ],
)
def test_different_values_have_different_fingerprints(left: Any, right: Any) -> None:
    assert fingerprint(left) != fingerprint(right)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=3).map(tuple)
        | st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=2), inner, max_size=3)
        | st.builds(Record, inner, inner)
    ),
    max_leaves=6,
)


@given(values, values)
def test_fingerprints_are_equal_where_values_are_and_nowhere_else(one: Any, other: Any) -> None:
    assert (fingerprint(one) == fingerprint(other)) is (repr(one) == repr(other))


def test_a_changed_argument_is_named() -> None:
    state, replies = Record(np.zeros(2)), [1]
    with unchanged(True, "merge_train", state, replies):
        pass
    with (
        pytest.raises(
            InvariantError, match="hook merge_train changed its argument 1, a list: return a new one"
        ),
        unchanged(True, "merge_train", state, replies),
    ):
        replies.append(2)
    with (
        pytest.raises(InvariantError, match="argument 0, a Record"),
        unchanged(True, "merge_train", state, replies),
    ):
        state.values[0] = 1


def test_nothing_is_checked_unless_enabled() -> None:
    values = [1]
    with unchanged(False, "merge_train", values):
        values.append(2)


def test_an_error_in_the_block_comes_first() -> None:
    values = [1]

    def fail() -> None:
        values.append(2)
        raise LookupError

    with pytest.raises(LookupError), unchanged(True, "merge_train", values):
        fail()
