"""Curves are thinned without losing what one sees of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.figures.chart_types import Line
from fedsim.figures.thinning import kept, spread_over, thinned
from tests.conftest import there

VALUES = st.lists(st.floats(-1e6, 1e6) | st.just(float("nan")), max_size=200)


@given(values=VALUES, most=st.integers(4, 50))
def test_ends_and_extremes_are_kept(values: list[float], most: int) -> None:
    curve = np.array(values, float)
    some = kept(curve, most)
    assert len(some) == len(values) if len(values) <= most else 4 <= len(some) + 2 <= most + 2
    assert (np.diff(some) > 0).all()
    if values:
        assert (some[0], some[-1]) == (0, len(values) - 1)
    if np.isfinite(curve).any():
        assert np.nanmin(curve[some]) == np.nanmin(curve)
        assert np.nanmax(curve[some]) == np.nanmax(curve)


def test_of_each_piece_the_extremes_are_kept() -> None:
    # First, last, and of the pieces 5 1 3 and 2 9 4 the least and the largest.
    assert kept(np.array([0, 5, 1, 3, 2, 9, 4, 7.0]), 6).tolist() == [0, 1, 2, 4, 5, 7]


def test_a_band_is_thinned_with_its_line() -> None:
    y = np.array([0, 5, 1, 3, 2, 9, 4, 7.0])
    line = thinned(Line("a", 10 * y, y, y - 1, y + 1), 6)
    assert line.y.tolist() == [0, 5, 1, 2, 9, 7]
    assert line.x.tolist() == [0, 50, 10, 20, 90, 70]
    assert (there(line.high) - there(line.low)).tolist() == [2] * 6


@pytest.mark.parametrize(
    ("count", "most", "wanted"), [(3, 5, [0, 1, 2]), (9, 3, [0, 4, 8]), (10, 4, [0, 3, 6, 9]), (0, 4, [])]
)
def test_some_of_many(count: int, most: int, wanted: list[int]) -> None:
    assert spread_over(count, most).tolist() == wanted
