"""Projection of the coefficient matrix's rows onto a simplex."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedsim.algorithms.common.ktpfl_coefficients import project
from fedsim.params import Array

ROWS = st.integers(1, 7).flatmap(
    lambda m: st.integers(1, 4).flatmap(
        lambda r: st.tuples(
            arrays(np.float64, (r, m), elements=st.floats(-10, 10)),
            arrays(np.float64, (r,), elements=st.just(0.0) | st.floats(1e-3, 5)),
        )
    )
)


@pytest.mark.parametrize(
    ("row", "mass", "projected"),
    [
        ([0.2, 0.3, 0.5], 1.0, [0.2, 0.3, 0.5]),
        ([1.0, 1.0], 1.0, [0.5, 0.5]),
        ([2.0, 0.0, -1.0], 1.0, [1.0, 0.0, 0.0]),
        ([0.8, 0.6, -0.4], 1.0, [0.6, 0.4, 0.0]),
        ([0.0, 0.0, 0.0], 3.0, [1.0, 1.0, 1.0]),
        ([-5.0, -5.0], 1.0, [0.5, 0.5]),
        ([7.0], 2.0, [2.0]),
        ([3.0, 1.0], 0.0, [0.0, 0.0]),
    ],
)
def test_by_hand(row: list[float], mass: float, projected: list[float]) -> None:
    np.testing.assert_allclose(project(np.array([row]), np.array([mass])), [projected], atol=1e-15)


@given(ROWS)
def test_what_comes_out_is_feasible(given_rows: tuple[Array, Array]) -> None:
    rows, mass = given_rows
    projected = project(rows, mass)
    assert projected.shape == rows.shape
    assert (projected >= 0).all()
    np.testing.assert_allclose(projected.sum(axis=1), mass, atol=1e-12)


@given(ROWS)
def test_it_is_the_nearest(given_rows: tuple[Array, Array]) -> None:
    # Karush, Kuhn, Tucker: where the result is positive, it is the row less one level; elsewhere the row is
    # not above that level.
    rows, mass = given_rows
    for row, one, result in zip(rows, mass, project(rows, mass), strict=True):
        if one == 0:
            continue
        positive = result > 0
        levels = (row - result)[positive]
        assert np.ptp(levels) <= 1e-12
        assert (row[~positive] <= levels[0] + 1e-12).all()


@given(ROWS)
def test_projecting_again_changes_nothing(given_rows: tuple[Array, Array]) -> None:
    rows, mass = given_rows
    once = project(rows, mass)
    np.testing.assert_allclose(project(once, mass), once, atol=1e-12)


def test_rows_do_not_meet_and_arguments_stay() -> None:
    rows, mass = np.array([[0.8, 0.6, -0.4], [9.0, 9.0, 9.0]], np.float32), np.array([1.0, 3.0])
    before = rows.copy()
    projected = project(rows, mass)
    assert projected.dtype == np.float64
    np.testing.assert_array_equal(rows, before)
    np.testing.assert_array_equal(projected[1], project(rows[1:], mass[1:])[0])
