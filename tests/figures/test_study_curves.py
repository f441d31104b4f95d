"""Means of curves over seeds, with bands."""

from collections.abc import Sequence

import numpy as np
import pytest

from fedsim.figures.chart_types import LineChart, Target
from fedsim.figures.study_curves import mean_line, study_curve_figures
from fedsim.report.cost_breakdown import Columns
from fedsim.studies.study_file import StudyConfig
from tests.conftest import there
from tests.figures.conftest import chart_of

X, Y = np.array([1, 3.0]), np.array([0.2, 0.6])


def curve(x: list[float], accuracy: list[float], sent: float = 100.0) -> Columns:
    known = {"simulated_s": np.array(x), "bytes_up": sent * np.array(x), "bytes_down": np.zeros(len(x))}
    names = ("accuracy_worst_decile", "accuracy_global", "loss_personal_mean", "loss_global")
    return known | {
        "accuracy_personal_mean": np.array(accuracy),
        **{name: np.full(len(x), np.nan) for name in names},
    }


def asked(targets: Sequence[float] = (), *, of: str = "personal_mean") -> StudyConfig:
    tables = {"base": {}, "variant": [{"algorithm": "fedavg"}], "of": of, "targets": list(targets)}
    return StudyConfig.model_validate(tables)


def test_a_single_curve_is_its_own_mean() -> None:
    line = there(mean_line("a", [(X, Y)]))
    assert (line.x.tolist(), line.y.tolist(), line.low) == ([1, 3], [0.2, 0.6], None)
    assert mean_line("nothing", []) is None


def test_the_mean_is_taken_wherever_a_curve_has_a_point() -> None:
    line = there(mean_line("a", [(X, Y), (np.array([2, 4.0]), np.array([0.2, 0.8]))]))
    assert line.x.tolist() == [2, 3, 4]  # at 1 the second has not begun
    np.testing.assert_allclose(line.y, [(0.4 + 0.2) / 2, (0.6 + 0.5) / 2, (0.6 + 0.8) / 2])
    np.testing.assert_allclose(there(line.low), [0.2, 0.5, 0.6])  # after its end the first stays at 0.6
    np.testing.assert_allclose(there(line.high), [0.4, 0.6, 0.8])


def test_costs_far_apart_are_shown_on_a_logarithmic_axis() -> None:
    near = {"a": {0: curve([0, 2], [0.1, 0.5])}, "b": {0: curve([0, 4], [0.1, 0.6])}}
    far = near | {"b": {0: curve([0, 40], [0.1, 0.6])}}
    for curves, scale, first in ((near, "linear", 0), (far, "log", 2)):
        by_time, by_bytes = study_curve_figures(curves, asked([0.5]))
        for figure in (by_time, by_bytes):
            chart = chart_of(figure, LineChart)
            assert chart.x.scale == scale
            assert chart.targets == [Target(0.5, "target 50 %")]
        assert chart_of(by_time, LineChart).lines[0].x[0] == first


def test_of_whom_no_time_passes_is_told() -> None:
    by_time, _ = study_curve_figures(
        {"instant": {0: curve([0, 0], [0.1, 0.5])}, "b": {0: curve([1, 2], [0.1, 0.6])}}, asked()
    )
    assert "Without a line, since no time passes: instant." in by_time.notes


def test_who_sends_nothing_keeps_its_colour_and_has_no_line() -> None:
    curves = {"local": {0: curve([1, 2], [0.1, 0.5], sent=0)}, "b": {0: curve([1, 2], [0.1, 0.6])}}
    _, by_bytes = study_curve_figures(curves, asked())
    lines = chart_of(by_bytes, LineChart).lines
    assert [(line.label, len(line.x)) for line in lines] == [("local", 0), ("b", 2)]
    assert "Without a line, since nothing is sent: local." in by_bytes.notes
    only_local = {"local": curves["local"]}
    assert [figure.name for figure in study_curve_figures(only_local, asked())] == ["accuracy-by-time"]


@pytest.mark.parametrize("of", ["global", "personal_worst_decile"])
def test_what_was_not_measured_has_no_figure(of: str) -> None:
    assert study_curve_figures({"a": {0: curve([1], [0.5])}, "ended": {}}, asked(of=of)) == []


def test_of_a_regression_the_loss_is_shown() -> None:
    columns = {**curve([1, 2], [np.nan, np.nan]), "loss_personal_mean": np.array([3, 2.0])}
    figures = study_curve_figures({"a": {0: columns}}, asked([0.5]))
    assert [figure.name for figure in figures] == ["loss-by-time", "loss-by-bytes"]
    assert chart_of(figures[0], LineChart).targets == ()
