"""Figures are drawn into files, the same each time, whatever their labels are."""

import re
import sys
from pathlib import Path
from xml.parsers import expat

import numpy as np
import pytest

from fedsim.errors import OutputError, UserError
from fedsim.figures.chart_drawing import MAX_IN_LEGEND, drawn, plain
from fedsim.figures.chart_types import (
    Axis,
    BarChart,
    Chart,
    Figure,
    GanttChart,
    HeatChart,
    Line,
    LineChart,
    Part,
    PointChart,
    Points,
    Section,
    Target,
)
from fedsim.figures.drawing import FORMATS, chart_csv, write_figures
from fedsim.figures.run_figures import run_sections
from fedsim.figures.thinning import MAX_POINTS
from fedsim.plugins import install_command

NASTY = ["$", "$x_1^2$ \\frac", "<b>&amp;", "\x00\x1b]--", "\N{CJK UNIFIED IDEOGRAPH-673A}", "", "y" * 200]
"""What matplotlib takes for formulae, XML for markup, and what has no glyph."""

TIME, SHARE = Axis("simulated time", "s"), Axis("accuracy $", "share")
ONE, TWO, NOTHING = np.array([0.5]), np.array([0.1, 0.9]), np.empty(0)
NO_ROW = np.empty(0, np.int64)

CHARTS: dict[str, Chart] = {
    "lines": LineChart(
        Axis("bytes", "B", "log"),
        SHARE,
        [Line(label, 1e6 * TWO, TWO, TWO / 2, TWO) for label in NASTY],
        [Target(0.5, "$ half _ of it")],
    ),
    "many-lines": LineChart(TIME, Axis("rate", "B/s"), [Line(str(n), TWO, TWO) for n in range(30)]),
    "steps": LineChart(TIME, SHARE, [Line("a", TWO, np.array([np.nan, 1]))], is_stepped=True),
    "one-point": LineChart(TIME, SHARE, [Line("a", ONE, ONE), Line("b", NOTHING, NOTHING)]),
    "no-line": LineChart(TIME, SHARE, [Line("a", NOTHING, NOTHING)]),
    "points": PointChart(Axis("samples"), SHARE, [Points(label, TWO, TWO, ["", "$"]) for label in NASTY[:3]]),
    "bars": BarChart(NASTY[:3], [Part(label, np.arange(3)) for label in NASTY[:3]], Axis("bytes", "B")),
    "no-length": BarChart(["a"], [Part("b", np.zeros(1))], Axis("time", "s")),
    "heat": HeatChart("$client", "class_", NASTY[:3], NASTY[:3], np.ones((3, 3)), Axis("samples $")),
    "no-heat": HeatChart("client", "class", ["0"], ["0"], np.zeros((1, 1)), Axis("samples")),
    "gantt": GanttChart(
        NASTY[:3], NASTY[:3], *(np.arange(3),) * 3, np.zeros(3), np.ones(3),
        np.arange(50), np.arange(50) / 50, np.arange(1, 51) / 50,
    ),
    "no-gantt": GanttChart([], ["upload"], *(NO_ROW,) * 3, NOTHING, NOTHING, NO_ROW, NOTHING, NOTHING),
}  # fmt: skip

RARE = {"many-lines", "one-point", "no-line", "no-length", "no-heat", "no-gantt"}
"""Many parts, or few; these are slow tests."""


def section(*names: str) -> Section:
    return Section(
        "all", "All", [Figure(name, f"$ {name} _", "--> <b>", CHARTS[name], ["$"]) for name in names]
    )


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in RARE else []) for name in CHARTS]
)
def test_every_kind_of_chart_is_drawn_with_any_labels(name: str, tmp_path: Path) -> None:
    files = write_figures([section(name)], tmp_path / "figures")
    assert [file.name for file in files] == [f"{name}.{kind}" for kind in (*FORMATS, "csv")]
    svg, png, pdf, csv = (file.read_bytes() for file in files)
    expat.ParserCreate().Parse(svg, True)
    assert png.startswith(b"\x89PNG")
    assert pdf.startswith(b"%PDF")
    assert b"," in csv


@pytest.mark.slow
def test_the_same_figures_are_the_same_files(run_folder: Path, tmp_path: Path) -> None:
    one, two = (write_figures(run_sections(run_folder)[:1], tmp_path / folder) for folder in ("one", "two"))
    assert len(one) == 8
    assert [file.read_bytes() for file in one] == [file.read_bytes() for file in two]


def test_a_picture_has_fewer_points_than_a_long_line_and_the_csv_file_has_all(tmp_path: Path) -> None:
    at = np.arange(3.0 * MAX_POINTS)
    chart = LineChart(TIME, SHARE, [Line("a", at, np.sin(at))])
    *_, csv = write_figures([Section("all", "All", [Figure("long", "Long", "", chart)])], tmp_path)
    assert len(csv.read_text().splitlines()) == 1 + len(at)
    (path,) = drawn(chart).axes[0].lines
    assert len(np.asarray(path.get_xdata())) <= MAX_POINTS


def test_files_that_are_there_are_replaced_only_by_force(tmp_path: Path) -> None:
    (tmp_path / "steps.csv").write_text("mine")
    with pytest.raises(OutputError, match=r"steps\.csv exists already: replace it with the option force"):
        write_figures([section("bars", "steps")], tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["steps.csv"]
    write_figures([section("steps")], tmp_path, force=True)
    assert (tmp_path / "steps.csv").read_text().startswith("line,")


def test_without_matplotlib_it_is_told_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UserError, match=re.escape(install_command("figures"))):
        write_figures([section("bars")], tmp_path / "figures")
    assert not (tmp_path / "figures").exists()


def test_a_label_is_short_and_on_one_line() -> None:
    assert plain("a\nb\x00") == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}"
    assert len(plain("y" * 100)) == 34
    assert plain("$x_1$ <b>") == "$x_1$ <b>"


def test_a_legend_has_each_line_and_of_very_many_says_so() -> None:
    few, many = (
        drawn(LineChart(TIME, SHARE, [Line(label, TWO, TWO) for label in labels])).legends[0].get_texts()
        for labels in (["_a", "$b$"], map(str, range(30)))
    )
    assert [text.get_text() for text in few] == [" _a", "$b$"]
    assert [text.get_text() for text in many][-2:] == [str(MAX_IN_LEGEND - 1), "and 18 more"]


def test_the_vertical_axis_follows_the_lines_and_only_near_targets_are_lines() -> None:
    line = Line("a", TWO, np.array([0.5, 0.7]), np.array([0.4, 0.6]), np.array([0.6, 0.8]))
    (axes,) = drawn(LineChart(TIME, SHARE, [line], [Target(0.85, "near"), Target(0.1, "far")])).axes
    assert axes.get_ylim() == pytest.approx((0.3775, 0.8725))
    assert [np.asarray(one.get_ydata())[0] for one in axes.lines] == [0.5, 0.85]
    assert [text.get_text() for text in axes.texts] == ["near", "far ↓"]
    (axes,) = drawn(LineChart(TIME, SHARE, [line])).axes
    assert (len(axes.lines), len(axes.texts)) == (1, 0)


ACCURACY = Axis("accuracy", "share")
SINGLE, GAP, FIRST = np.array([1.0]), np.array([0.5, np.nan]), np.zeros(1, np.int64)


@pytest.mark.parametrize(
    ("chart", "wanted"),
    [
        (
            LineChart(
                TIME,
                ACCURACY,
                [Line("a, b", np.array([1, 2.0]), GAP), Line("c", SINGLE, SINGLE / 2, SINGLE / 4, SINGLE)],
                [Target(0.7, "target")],
            ),
            "line,simulated time [s],accuracy,\"accuracy, low\",\"accuracy, high\"\n"
            '"a, b",1.0,0.5,,\n"a, b",2.0,,,\nc,1.0,0.5,0.25,1.0\ntarget,,0.7,,\n',
        ),
        (
            PointChart(Axis("bytes", "B"), ACCURACY, [Points("phones", SINGLE, SINGLE, ["client 7"])]),
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
                ["client 3"], ["upload"], *(FIRST,) * 3, SINGLE, 2 * SINGLE, FIRST, SINGLE, 2 * SINGLE
            ),
            "row,round,phase,began at [s],ended at [s]\nclient 3,0,upload,1.0,2.0\n",
        ),
    ],
)  # fmt: skip
def test_a_row_for_each_value_with_the_unit_in_the_heading(chart: Chart, wanted: str) -> None:
    assert chart_csv(chart).decode() == wanted
