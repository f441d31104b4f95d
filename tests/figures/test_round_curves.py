"""Accuracy against time and bytes, from columns of rounds."""

import numpy as np

from fedsim.figures.chart_types import Figure, LineChart, Target
from fedsim.figures.round_curves import NEEDED, quality_figures, sent_by
from fedsim.params import Array
from tests.figures.conftest import chart_of

NAN = np.nan


def rounds(**columns: list[float]) -> dict[str, Array]:
    """Return three rounds that end at 1, 2 and 4 s, and send 10 B up and 20 B down each."""
    found: dict[str, Array] = {name: np.full(3, NAN) for name in NEEDED}
    found |= {"ended_at_s": np.array([1, 2, 4.0])}
    found |= {name: np.zeros(3, np.int64) for name in ("data_up", "data_down")}
    found |= {"bytes_up": np.full(3, 10), "bytes_down": np.full(3, 20)}
    return found | {name: np.array(values, float) for name, values in columns.items()}


def lists(figure: Figure) -> dict[str, tuple[list[float], list[float]]]:
    return {line.label: (line.x.tolist(), line.y.tolist()) for line in chart_of(figure, LineChart).lines}


def test_accuracy_by_time_and_bytes() -> None:
    by_time, by_bytes = quality_figures(
        rounds(accuracy_mean=[0.5, NAN, 0.8], accuracy_global=[NAN, NAN, 0.7]), [Target(0.75, "target")]
    )
    assert lists(by_time) == {"mean over clients": ([1, 4], [0.5, 0.8]), "global test set": ([4], [0.7])}
    assert lists(by_bytes)["mean over clients"] == ([30, 90], [0.5, 0.8])
    for figure in (by_time, by_bytes):
        assert [target.value for target in chart_of(figure, LineChart).targets] == [0.75]
        assert "mean over clients: from 50.0 %" in figure.text
    assert (by_time.name, by_bytes.name) == ("accuracy-by-time", "accuracy-by-bytes")


def test_raw_samples_are_bytes_too() -> None:
    columns = rounds() | {"data_up": np.array([0, 5, 0])}
    assert sent_by(columns).tolist() == [30, 65, 95]


def test_where_nothing_is_sent_there_is_time_alone() -> None:
    silent = rounds(accuracy_mean=[0.1, 0.2, 0.3], bytes_up=[0, 0, 0], bytes_down=[0, 0, 0])
    assert [figure.name for figure in quality_figures(silent)] == ["accuracy-by-time"]


def test_of_a_regression_the_loss_is_shown_without_targets() -> None:
    figure, _ = quality_figures(rounds(loss_mean=[9, 3, 0.1]), [Target(0.7, "no loss")])
    chart = chart_of(figure, LineChart)
    assert lists(figure) == {"mean over clients": ([1, 2, 4], [9, 3, 0.1])}
    assert (figure.name, chart.y.scale, chart.targets) == ("loss-by-time", "log", ())


def test_what_was_not_measured_has_no_figure() -> None:
    assert quality_figures(rounds()) == []
    columns = rounds()
    assert quality_figures({name: columns[name] for name in ("ended_at_s",)}) == []
    assert quality_figures({name: values[:0] for name, values in columns.items()}) == []
