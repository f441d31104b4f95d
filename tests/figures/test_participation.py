"""Dispatches and their outcomes."""

import numpy as np

from fedsim.figures.chart_types import BarChart, LineChart
from fedsim.figures.participation import outcome_figures, outcomes_by_group, participation_figures
from tests.figures.conftest import chart_of

ROUNDS = {
    "ended_at_s": np.array([1, 2.0]),
    "asked": np.array([3, 3]),
    "merged": np.array([3, 2]),
    "dropped": np.array([0, 1]),
    "rejected": np.array([0, 0]),
    "late": np.array([0, 0]),
    "staleness_mean": np.array([0, np.nan]),
    "staleness_max": np.array([0, np.nan]),
}


def test_outcomes_that_occur_are_shown_over_time() -> None:
    (figure,) = participation_figures(ROUNDS)
    assert {line.label: line.y.tolist() for line in chart_of(figure, LineChart).lines} == {
        "asked": [3, 3],
        "merged": [3, 2],
        "dropped": [0, 1],
    }


def test_staleness_is_shown_where_there_is_any() -> None:
    stale = ROUNDS | {"staleness_mean": np.array([np.nan, 1.5]), "staleness_max": np.array([np.nan, 2])}
    _, figure = participation_figures(stale)
    mean, largest = chart_of(figure, LineChart).lines
    assert (mean.x.tolist(), mean.y.tolist(), largest.y.tolist()) == ([2], [1.5], [2])


def test_of_a_run_that_goes_on_there_may_be_no_staleness() -> None:
    known = {name: values for name, values in ROUNDS.items() if not name.startswith("staleness")}
    assert len(participation_figures(known)) == 1
    for few in (0, 1):
        assert participation_figures({name: values[:few] for name, values in known.items()}) == []


def test_groups_are_compared_by_the_mean_over_their_clients() -> None:
    clients = {"merged": np.array([2, 1]), "dropped": np.array([0, 1]), "rejected": np.zeros(2)}
    others = {name: np.zeros(1) for name in clients}
    (figure,) = outcomes_by_group({"phones": clients, "idle": others})
    assert {part.label: part.values.tolist() for part in chart_of(figure, BarChart).parts} == {
        "merged": [1.5, 0],
        "dropped": [0.5, 0],
    }
    assert outcome_figures({"idle": {"merged": 0.0}}) == []
    assert outcomes_by_group({}) == []
