"""Marks of axes are at round values."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.figures.chart_types import Axis, Scale, Unit
from fedsim.figures.ticks import reach, tick_label, ticks


@pytest.mark.parametrize(
    ("low", "high", "unit", "wanted"),
    [
        (0, 76, "s", ["0 s", "15 s", "30 s", "45 s", "1 min", "1 min 15 s"]),
        (0, 0.9, "s", ["0 s", "200 ms", "400 ms", "600 ms", "800 ms"]),
        (0, 400_000, "s", ["0 s", "1 d", "2 d", "3 d", "4 d"]),
        (0, 101e6, "B", ["0 B", "20 MB", "40 MB", "60 MB", "80 MB", "100 MB"]),
        (0.42, 0.91, "share", ["50 %", "60 %", "70 %", "80 %", "90 %"]),
        (0, 12, "1", ["0", "5", "10"]),
        (7, 7, "1", ["7"]),
    ],
)
def test_steps_are_round_in_the_unit(low: float, high: float, unit: Unit, wanted: list[str]) -> None:
    assert [tick_label(value, unit) for value in ticks(low, high, unit)] == wanted


@pytest.mark.parametrize(
    ("low", "high", "unit", "wanted"),
    [
        (0.2, 5000, "s", ["1 s", "10 s", "1 min", "10 min", "1 h"]),
        (3e5, 5e8, "B", ["1 MB", "10 MB", "100 MB"]),
        (2e6, 6e6, "B", ["2 MB", "5 MB"]),
        (12, 50, "s", ["15 s", "30 s"]),
    ],
)
def test_marks_of_a_logarithmic_axis_are_powers(
    low: float, high: float, unit: Unit, wanted: list[str]
) -> None:
    assert [tick_label(value, unit) for value in ticks(low, high, unit, "log")] == wanted


@given(
    low=st.floats(1e-6, 1e12),
    times=st.floats(1.001, 1e12),
    unit=st.sampled_from(["s", "B", "B/s", "share", "1"]),
    scale=st.sampled_from(["linear", "log"]),
    most=st.integers(2, 12),
)
def test_marks_are_few_and_on_the_axis(low: float, times: float, unit: Unit, scale: Scale, most: int) -> None:
    found = ticks(low, low * times, unit, scale, most)
    assert len(found) <= most
    assert (np.diff(found) > 0).all()
    slack = 1e-6 * (low * times if scale == "linear" else low)
    assert all(low - slack <= value <= low * times * (1 + 1e-6) for value in found)
    if times > 20 and most >= 4:
        assert found
    assert all(tick_label(value, unit) for value in found)


REACHES: list[tuple[tuple[float, float], Axis, list[float], tuple[float, float]]] = [
    ((0.3, 0.8), Axis("accuracy", "share"), [], (0.275, 0.825)),  # no third of the plot below the lines
    ((0.9, 1), Axis("accuracy", "share"), [], (0.895, 1.005)),
    ((1, 11), Axis("loss"), [], (0, 11.5)),  # zero is near
    ((0, 0), Axis("rate", "B/s"), [], (0, 0.5)),
    ((8, 8), Axis("dispatches"), [], (7.2, 8.8)),
    ((0.5, 0.7), Axis("accuracy", "share"), [0.75], (0.4875, 0.7625)),
    ((0.5, 0.7), Axis("accuracy", "share"), [0.9], (0.49, 0.71)),  # too far
    ((0.5, 0.5), Axis("accuracy", "share"), [0.9], (0.48, 0.92)),
    ((1, 100), Axis("loss", scale="log"), [], (100**-0.04, 100**1.04)),
]


@pytest.mark.parametrize(("values", "axis", "marked", "ends"), REACHES)
def test_an_axis_reaches_a_little_beyond_what_it_shows(
    values: tuple[float, float], axis: Axis, marked: list[float], ends: tuple[float, float]
) -> None:
    assert reach(*values, axis, marked) == pytest.approx(ends)
