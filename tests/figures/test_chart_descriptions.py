"""Numbers and lines in words."""

import numpy as np
import pytest

from fedsim.figures.chart_descriptions import amount, bars_text, lines_text
from fedsim.figures.chart_types import Axis, BarChart, Line, LineChart, Part, Unit

TIME, SHARE = Axis("simulated time", "s"), Axis("accuracy", "share")


@pytest.mark.parametrize(
    ("value", "unit", "wanted"),
    [
        (76, "s", "1 min 16 s"),
        (50.4e6, "B", "50.4 MB"),
        (2.5e6, "B/s", "2.5 MB/s"),
        (0.971, "share", "97.1 %"),
        (12.0, "1", "12"),
        (0.0123, "1", "0.0123"),
        (12_345.6, "1", "12.3 k"),
    ],
)
def test_an_amount_has_three_digits_and_a_unit(value: float, unit: Unit, wanted: str) -> None:
    assert amount(value, unit) == wanted


def test_a_line_is_told_by_its_ends_and_its_top() -> None:
    x = np.array([1, 2, 3.0])
    lines = [
        Line("a", x, np.array([0.1, 0.5, 0.3])),
        Line("b", x, np.array([np.nan, 0.2, 0.4])),
        Line("c", x[:1], np.array([0.9])),
        Line("nothing", x[:0], x[:0]),
    ]
    assert lines_text(LineChart(TIME, SHARE, lines)) == (
        "Accuracy. a: from 10.0 % at 1 s to 30.0 % at 3 s, at most 50.0 % at 2 s; b: from 20.0 % at 2 s to "
        "40.0 % at 3 s; c: 90.0 % at 1 s."
    )


def test_of_many_lines_some_are_told() -> None:
    lines = [Line(str(number), np.ones(1), np.ones(1)) for number in range(8)]
    assert lines_text(LineChart(Axis("round"), SHARE, lines)).endswith("5: 100.0 % at round 1; and 2 more.")


def test_a_bar_is_told_by_its_parts() -> None:
    parts = [Part("up", np.array([1e3, 0])), Part("down", np.array([5e6, 2]))]
    assert bars_text(BarChart(["a", "b"], parts, Axis("bytes", "B"))) == (
        "Bytes. a: 1 kB up, 5 MB down; b: 0 B up, 2 B down."
    )
