"""Columns of records are the records that were put into them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.clock.record_columns import Columns, column, joined

values = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.booleans(),
    st.text(max_size=3),
    st.none(),
)
lists = st.lists(values, min_size=1, max_size=5) | st.lists(st.integers(0, 2), min_size=1, max_size=5)


def _typed(plain: Any) -> list[tuple[type, Any]]:
    return [(type(value), value) for value in plain]


def _plain(count: int, its: Any) -> list[Any]:
    return Columns(count, [its]).plain(0)


@given(lists)
def test_a_column_keeps_values_and_types(plain: list[Any]) -> None:
    assert _typed(_plain(len(plain), column(plain))) == _typed(plain)


@given(st.lists(lists, min_size=1, max_size=4))
def test_columns_are_joined(parts: list[list[Any]]) -> None:
    together = joined([len(part) for part in parts], [column(part) for part in parts])
    assert _typed(_plain(sum(map(len, parts)), together)) == _typed(
        [value for part in parts for value in part]
    )


def test_equal_values_are_kept_once() -> None:
    assert column(["fit", "fit"]) == "fit"
    assert column([3, 3]) == 3
    assert isinstance(column([True, 1]), np.ndarray)  # equal, but of two types


@pytest.mark.parametrize(("places", "rows"), [([0, 2], [(1, "x", 4), (3, "x", 6)]), ([], [])])
def test_some_records_are_chosen(places: list[int], rows: list[Any]) -> None:
    columns = Columns(3, [np.array([1, 2, 3]), "x", np.array([4, 5, 6])])
    assert list(columns.rows()) == [(1, "x", 4), (2, "x", 5), (3, "x", 6)]
    assert list(columns.chosen(np.array(places, np.int64)).rows()) == rows
