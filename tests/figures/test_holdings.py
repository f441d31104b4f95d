"""Who has which data."""

import numpy as np

from fedsim.figures.chart_types import HeatChart, LineChart
from fedsim.figures.holdings import MAX_COLUMNS, MAX_ROWS, amount_figures, class_figures
from tests.figures.conftest import chart_of


def test_samples_by_client_and_class() -> None:
    held = {
        "client": np.array([0, 0, 3]),
        "class": np.array([2, 7, 7]),
        "class_name": np.array(["emu", "owl", "owl"], object),
        "num_samples": np.array([1, 3, 5]),
    }
    (figure,) = class_figures(held)
    chart = chart_of(figure, HeatChart)
    assert (chart.rows, chart.columns) == (["0", "3"], ["emu", "owl"])
    assert chart.values.tolist() == [[1, 3], [0, 5]]
    assert "1.5 of 2 classes on average" in figure.text
    assert "87.5 % of its samples" in figure.text


def test_of_many_clients_and_classes_some_are_shown() -> None:
    count = MAX_COLUMNS + 20
    held = {
        "client": np.arange(count),
        "class": np.arange(count),
        "class_name": np.array([f"class {one}" for one in range(count)], object),
        "num_samples": np.arange(1, count + 1),
    }
    (figure,) = class_figures(held)
    chart = chart_of(figure, HeatChart)
    assert chart.values.shape == (MAX_ROWS, MAX_COLUMNS)
    assert (chart.rows[0], chart.rows[-1]) == ("0", str(count - 1))
    assert chart.columns[0] == "class 20"
    assert len(figure.notes) == 2


def test_amounts_from_the_fewest_to_the_most() -> None:
    (figure,) = amount_figures(np.array([30, 10, 20, 900]))
    chart = chart_of(figure, LineChart)
    (line,) = chart.lines
    assert (line.x.tolist(), line.y.tolist()) == ([0.25, 0.5, 0.75, 1], [10, 20, 30, 900])
    assert chart.y.scale == "log"
    assert figure.text == "4 clients have 10 to 900 training samples, 25 in the median, 960 together."


def test_without_classes_or_differences_there_is_no_figure() -> None:
    assert class_figures({}) == []
    assert (
        class_figures({name: np.empty(0) for name in ("client", "class", "class_name", "num_samples")}) == []
    )
    assert amount_figures(np.full(3, 100)) == amount_figures(np.empty(0)) == []
