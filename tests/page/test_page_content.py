"""Pages as JSON: what is shown is there, in few digits, and columns say how they are sorted."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.figures.chart_types import Axis, Figure, GanttChart, Line, LineChart, PointChart, Points, Section
from fedsim.figures.thinning import MAX_POINTS
from fedsim.page.figure_json import figure_json, rounded
from fedsim.page.page_content import Page, page_json, sort_keys
from fedsim.report import number_format


def line_chart(*lines: Line) -> LineChart:
    return LineChart(Axis("time", "s"), Axis("accuracy", "share"), lines)


def test_numbers_have_the_digits_that_are_seen() -> None:
    values = [1 / 3, 2e9 / 3, -4.0, 0.0, math.nan, math.inf, 123456.0]
    assert rounded(values) == [0.3333, 666700000, -4, 0, None, None, 123500]
    assert json.dumps(rounded([100.0])) == "[100]"
    assert rounded(np.zeros(0)) == []


def test_values_far_from_zero_stay_apart() -> None:
    x = 1e6 + np.arange(4)
    chart = figure_json(Figure("a", "A", "", line_chart(Line("one", x, x * 0))))["chart"]
    assert chart["lines"][0]["x"] == x.tolist()


def test_of_a_long_line_no_more_points_are_sent_than_can_be_seen() -> None:
    at = np.arange(3.0 * MAX_POINTS)
    (line,) = figure_json(Figure("a", "A", "", line_chart(Line("one", at, np.sin(at)))))["chart"]["lines"]
    assert len(line["x"]) == len(line["y"]) <= MAX_POINTS
    assert line["x"][-1] == at[-1]


def test_a_line_is_as_it_was() -> None:
    line = Line(
        "one", np.array([0.0, 60]), np.array([0.1, np.nan]), np.array([0.05, 0.1]), np.array([0.2, 0.3])
    )
    said = figure_json(Figure("name", "Title", "Text.", line_chart(line), ["Note."]))
    assert said == {
        "name": "name",
        "title": "Title",
        "text": "Text.",
        "notes": ["Note."],
        "chart": {
            "kind": "line",
            "x": {"label": "time", "unit": "s", "scale": "linear"},
            "y": {"label": "accuracy", "unit": "share", "scale": "linear"},
            "lines": [
                {
                    "label": "one",
                    "number": 0,
                    "colour": 0,
                    "x": [0, 60],
                    "y": [0.1, None],
                    "low": [0.05, 0.1],
                    "high": [0.2, 0.3],
                }
            ],
            "targets": [],
            "stepped": False,
        },
    }


def test_spans_are_whole_steps_that_add_up() -> None:
    began, ended = np.array([0.0, 1.5, 0.25]), np.array([1.5, 2.0, 1.0])
    chart = GanttChart(
        ["client 0", "client 1"],
        ["compute", "upload"],
        np.array([0, 0, 1]),
        np.array([0, 1, 0]),
        np.array([1, 1, 1]),
        began,
        ended,
        np.array([1]),
        np.array([0.0]),
        np.array([2.0]),
    )
    said = figure_json(Figure("gantt", "", "", chart))["chart"]
    assert said["stepS"] == 0.001
    assert (np.cumsum(said["later"]) * said["stepS"]).tolist() == began.tolist()
    assert ((np.cumsum(said["later"]) + said["lasted"]) * said["stepS"]).tolist() == ended.tolist()
    assert said["roundEnded"] == [2000]
    assert said["colours"] == [2, 1]  # those of compute and upload in every figure


def test_things_look_the_same_in_all_charts_of_a_page() -> None:
    def figure(name: str, *labels: str) -> Figure:
        return Figure(name, "", "", line_chart(*(Line(label, np.zeros(1), np.zeros(1)) for label in labels)))

    points = PointChart(Axis("x"), Axis("y"), [Points("c", np.zeros(1), np.zeros(1), ["p"])])
    sections = [
        Section(
            "one", "", [figure("all", "a", "b", "c"), figure("some", "c", "b"), figure("other", "c", "d")]
        ),
        Section("two", "", [Figure("points", "", "", points)]),
    ]
    said = page_json(Page("t", "run", "", sections=sections))["sections"]
    found = [
        {one["label"]: one["colour"] for one in figure["chart"].get("lines") or figure["chart"]["groups"]}
        for section in said
        for figure in section["figures"]
    ]
    assert found == [{"a": 0, "b": 1, "c": 2}, {"c": 2, "b": 1}, {"c": 0, "d": 1}, {"c": 2}]


@pytest.mark.parametrize(
    ("cell", "key"),
    [
        ("93.4 ± 2.1*", 93.4),
        ("1 min 3 s ± 2 s", 63),
        ("12 h 3 min", 12 * 3600 + 180),
        ("-1 min 3 s", -63),
        ("+5.3", 5.3),
        ("-250 ms", -0.25),
        ("1.23 MB*", 1.23e6),
        ("999 B", 999),
        ("1.23 M", 1.23e6),
        ("1/4", 0.25),
        ("0", 0),
        ("2 of 3", 2),
        ("70.1 (1 of 2)", 70.1),
        ("1e-07", 1e-7),
        ("nan", None),
        ("fedavg", None),
        ("3 rounds", None),
    ],
)
def test_cells_are_read_as_they_are_written(cell: str, key: float | None) -> None:
    assert sort_keys(["1", cell]) == (None if key is None else [1, pytest.approx(key)])


@given(exponent=st.floats(-8, 14))
def test_any_time_size_and_count_is_read_back(exponent: float) -> None:
    value = 10**exponent
    shown = {
        number_format.duration(value): value,
        number_format.size(value): value,
        number_format.count(round(value)): round(value),
    }
    for cell, wanted in shown.items():
        (key,) = sort_keys([cell]) or [None]
        assert key == pytest.approx(wanted, rel=0.05)  # of 1 d 59 min a day is shown


def test_what_is_not_there_has_no_key() -> None:
    assert sort_keys(["-", "1 s", ""]) == [None, 1, None]
    assert sort_keys(["-", "-"]) is None
    assert sort_keys([]) is None
