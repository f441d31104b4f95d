"""The data of charts as CSV."""

import numpy as np
import pytest

from fedsim.figures.base import (
    Axis,
    BarChart,
    Chart,
    GanttChart,
    HeatChart,
    Line,
    LineChart,
    Part,
    PointChart,
    Points,
    Target,
)
from fedsim.figures.chart_csv import chart_csv

TIME, SHARE = Axis("simulated time", "s"), Axis("accuracy", "share")
ONE, TWO, FIRST = np.array([1.0]), np.array([0.5, np.nan]), np.zeros(1, np.int64)


@pytest.mark.parametrize(
    ("chart", "wanted"),
    [
        (
            LineChart(
                TIME,
                SHARE,
                [Line("a, b", np.array([1, 2.0]), TWO), Line("c", ONE, ONE / 2, ONE / 4, ONE)],
                [Target(0.7, "target")],
            ),
            "line,simulated time [s],accuracy,\"accuracy, low\",\"accuracy, high\"\n"
            '"a, b",1.0,0.5,,\n"a, b",2.0,,,\nc,1.0,0.5,0.25,1.0\ntarget,,0.7,,\n',
        ),
        (
            PointChart(Axis("bytes", "B"), SHARE, [Points("phones", ONE, ONE, ["client 7"])]),
            "group,name,bytes [B],accuracy\nphones,client 7,1.0,1.0\n",
        ),
        (
            BarChart(["x", "y"], [Part("up", np.array([1, 2]))], Axis("rate", "B/s")),
            "bar,part,rate [B/s]\nx,up,1.0\ny,up,2.0\n",
        ),
        (
            HeatChart("client", "class", ["0"], ["cat", "dog"], np.array([[3, 4.0]]), Axis("samples")),
            "client,class,samples\n0,cat,3.0\n0,dog,4.0\n",
        ),
        (
            GanttChart(
                ["client 3"], ["upload"], *(FIRST,) * 3, ONE, 2 * ONE, FIRST, ONE, 2 * ONE
            ),
            "row,round,phase,began at [s],ended at [s]\nclient 3,0,upload,1.0,2.0\n",
        ),
    ],
)  # fmt: skip
def test_a_row_for_each_value_with_the_unit_in_the_heading(chart: Chart, wanted: str) -> None:
    assert chart_csv(chart).decode() == wanted
