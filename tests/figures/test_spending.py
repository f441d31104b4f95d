"""Where time and bytes went, as bars."""

import numpy as np
import pytest

from fedsim.figures.chart_types import BarChart, Figure
from fedsim.figures.spending import spending_figures, spent

ROWS = {
    "download_s": np.array([1, 2.0]),
    "compute_s": np.array([3, 4.0]),
    "upload_s": np.array([0, 1.0]),
    "away_s": np.zeros(2),
    "waiting_s": np.array([0.5, 0]),
    "wasted_s": np.array([2, 0.0]),
    "bytes_up": np.array([10, 20]),
    "bytes_down": np.array([5, 5]),
    "data_up": np.array([1, 0]),
    "data_down": np.array([0, 0]),
    "overhead_up": np.array([2, 2]),
    "overhead_down": np.array([3, 3]),
    "wasted_bytes": np.array([0, 20]),
}


def parts(figure: Figure) -> dict[str, list[float]]:
    assert isinstance(figure.chart, BarChart)
    return {part.label: part.values.tolist() for part in figure.chart.parts}


def test_parts_add_up_to_what_was_spent() -> None:
    first = {name: values[:1] for name, values in ROWS.items()}
    time, work, num_bytes = spending_figures({"all": spent(ROWS), "first": spent(first)}, "in a test")
    assert parts(time) == {
        "download": [3, 1],
        "compute": [7, 3],
        "upload": [1, 0],
        "waiting": [0.5, 0.5],
    }  # nobody was away
    assert parts(work) == {"useful": [9, 2], "wasted": [2, 2]}
    assert parts(num_bytes) == {"useful": [21, 16], "wasted": [20, 0], "overhead": [10, 5]}
    assert time.title == "Client time by phase, in a test"
    assert "all: 3 s download, 7 s compute, 1 s upload, 500 ms waiting; first:" in time.text


@pytest.mark.parametrize("wasted_s", [np.nextafter(11, 0), 11, np.nextafter(11, 12)])
def test_where_all_work_is_wasted_none_is_useful(wasted_s: float) -> None:
    """Sums of seconds in another order differ a little in floating point."""
    lost = ROWS | {"wasted_s": np.array([wasted_s])}
    assert list(parts(spending_figures({"all": spent(lost)})[1])) == ["wasted"]


def test_without_waste_nothing_is_said_of_it() -> None:
    calm = ROWS | {"wasted_s": np.zeros(2)}
    assert [figure.name for figure in spending_figures({"all": spent(calm)})] == ["time-by-phase", "bytes"]


def test_of_a_run_that_goes_on_only_the_bytes_are_known() -> None:
    known = {name: values for name, values in ROWS.items() if not name.endswith("_s")}
    assert [figure.name for figure in spending_figures({"all": spent(known)})] == ["bytes"]


def test_where_nothing_was_spent_there_is_no_figure() -> None:
    assert spending_figures({}) == []
    assert spending_figures({"all": spent({name: values[:0] for name, values in ROWS.items()})}) == []
