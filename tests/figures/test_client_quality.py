"""How good it is for each client."""

import numpy as np
import pytest

from fedsim.figures.chart_types import LineChart, PointChart
from fedsim.figures.client_quality import (
    MAX_POINTS,
    by_data_figures,
    ranked_figure,
    ranked_figures,
    spread_figures,
)
from tests.conftest import there
from tests.figures.conftest import chart_of

NAN = np.nan
CLIENTS = {
    "client": np.arange(4),
    "group": np.array(["phones", "phones", "laptops", "laptops"], object),
    "num_train": np.array([10, 20, 30, 40]),
    "accuracy": np.array([0.2, 0.8, NAN, 0.6]),
    "loss": np.array([2, 1, NAN, 1.5]),
}


def test_the_spread_of_clients_over_time() -> None:
    evaluations = {
        "round": np.repeat([1, 3], 11),
        "accuracy": np.concatenate([np.linspace(0, 1, 11), np.full(11, 0.5)]),
        "loss": np.ones(22),
    }
    rounds = {"round": np.array([1, 2, 3]), "ended_at_s": np.array([1.0, 2, 4])}
    (figure,) = spread_figures(evaluations, rounds)
    median, lowest, highest = chart_of(figure, LineChart).lines
    assert (median.x.tolist(), median.y.tolist()) == ([1, 4], [0.5, 0.5])
    assert there(median.low).tolist() == pytest.approx([0.1, 0.5])
    assert there(median.high).tolist() == pytest.approx([0.9, 0.5])
    assert (lowest.y.tolist(), highest.y.tolist()) == ([0, 0.5], [1, 0.5])


def test_without_evaluations_there_is_no_spread() -> None:
    nothing = {"round": np.empty(0, int), "accuracy": np.empty(0), "loss": np.empty(0)}
    assert spread_figures(nothing, {"round": np.ones(1), "ended_at_s": np.ones(1)}) == []


def test_clients_are_ranked_within_their_group() -> None:
    groups = {
        name: {column: values[CLIENTS["group"] == name] for column, values in CLIENTS.items()}
        for name in ("phones", "laptops")
    }
    (figure,) = ranked_figures({name: [rows] for name, rows in groups.items()}, "group")
    phones, laptops = chart_of(figure, LineChart).lines
    assert (phones.x.tolist(), phones.y.tolist()) == ([0.5, 1], [0.2, 0.8])
    assert (laptops.x.tolist(), laptops.y.tolist()) == ([1], [0.6])
    assert figure.text == (
        "Accuracy of clients at the end. phones: mean 50.0 %, worst 10 %: 20.0 %; laptops: mean 60.0 %, "
        "worst 10 %: 60.0 %."
    )


@pytest.mark.parametrize(
    ("what", "legend"), [("accuracy", "worst 10 %: 15.0 %"), ("loss", "worst 10 %: 1.85")]
)
def test_the_legend_tells_of_those_left_behind(what: str, legend: str) -> None:
    # Two runs of twenty clients: the worst two are 0.1 and 0.2 of accuracy, or 1.9 and 1.8 of loss.
    values = np.linspace(0.1, 2.0, 20) if what == "accuracy" else np.linspace(0, 1.9, 20)
    figure = ranked_figure({"a": [values, values[::-1]]}, what, "variant")
    assert chart_of(figure, LineChart).lines[0].legend == legend


def test_seeds_make_a_band() -> None:
    figure = ranked_figure({"a": [np.array([0.4, 0.2]), np.array([0.4, NAN, 0.6])]}, "accuracy", "variant")
    (line,) = chart_of(figure, LineChart).lines
    assert line.y.tolist() == pytest.approx([0.3, 0.5])
    assert (there(line.low).tolist(), there(line.high).tolist()) == ([0.2, 0.4], [0.4, 0.6])
    assert ranked_figure({"a": [np.full(2, NAN)]}, "accuracy", "variant") is None


def test_accuracy_against_the_amount_of_data() -> None:
    (figure,) = by_data_figures(CLIENTS)
    phones, laptops = chart_of(figure, PointChart).groups
    assert (phones.x.tolist(), phones.y.tolist(), phones.names) == (
        [10, 20],
        [0.2, 0.8],
        ["client 0", "client 1"],
    )
    assert (laptops.x.tolist(), laptops.names) == ([40], ["client 3"])
    # Ranks 1 2 3 of the samples, and 1 3 2 of the accuracies.
    assert "3 clients with 10 to 40 training samples" in figure.text
    assert "is 0.50" in figure.text


def test_of_many_clients_the_worst_are_shown() -> None:
    count = 3 * MAX_POINTS
    clients = {
        "client": np.arange(count),
        "group": np.full(count, "phones", object),
        "num_train": np.arange(1, count + 1),
        "accuracy": np.linspace(1, 0, count),
    }
    (figure,) = by_data_figures(clients)
    chart = chart_of(figure, PointChart)
    (group,) = chart.groups
    assert len(group.x) == len(group.names) == MAX_POINTS
    assert set(range(count - MAX_POINTS // 10, count)) < {int(name.split()[1]) for name in group.names}
    assert chart.x.scale == "log"
    assert figure.notes


def test_of_a_regression_losses_are_shown() -> None:
    losses = CLIENTS | {"accuracy": np.full(4, NAN)}
    assert [figure.name for figure in by_data_figures(losses)] == ["loss-by-data"]
    assert [figure.name for figure in ranked_figures({"all": [losses]}, "group")] == ["loss-by-group"]


def test_where_all_have_as_much_data_or_nothing_was_measured_there_is_no_figure() -> None:
    assert by_data_figures(CLIENTS | {"num_train": np.full(4, 7)}) == []
    assert by_data_figures(CLIENTS | {name: np.full(4, NAN) for name in ("accuracy", "loss")}) == []
    assert ranked_figures({}, "group") == []
