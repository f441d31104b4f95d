"""Accuracy within budgets of time and bytes, from curves made by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.report.cost_breakdown import Columns
from fedsim.studies.budgets import (
    Budget,
    FrontPoint,
    accuracy_within,
    budgets,
    ended_before,
    front,
    mean_curve,
    stretches,
)
from fedsim.studies.plan import Setting
from fedsim.studies.study_file import AtConfig

A, B, LOCAL = (Setting(name, name) for name in ("a", "b", "local"))


def curve(time_s: list[float], kilobytes: list[float], accuracy: list[float]) -> Columns:
    return {
        "simulated_s": np.array(time_s, float),
        "bytes_up": 400 * np.array(kilobytes),
        "bytes_down": 600 * np.array(kilobytes),
        "accuracy_personal_mean": np.array(accuracy, float),
    }


ONE = curve([10, 20, 30], [1, 2, 3], [0.5, math.nan, 0.4])


@pytest.mark.parametrize(
    ("bounds", "amount", "accuracy", "is_over"),
    [
        ("time_s", 9.9, math.nan, False),  # nothing is known of what was before the first evaluation
        ("time_s", 10, 0.5, False),
        ("time_s", 29.9, 0.5, False),  # nothing was measured at 20 s
        ("time_s", 30, 0.4, False),
        ("time_s", 31, 0.4, True),
        ("bytes", 2999, 0.5, False),
        ("bytes", 3000, 0.4, False),
        ("bytes", 4000, 0.4, True),
    ],
)
def test_the_last_evaluation_within_a_budget_counts(
    bounds: str, amount: float, accuracy: float, is_over: bool
) -> None:
    budget = Budget(bounds, amount, True)
    assert accuracy_within(ONE, budget, "personal_mean") == pytest.approx(accuracy, nan_ok=True)
    assert ended_before(ONE, budget) == is_over


def test_without_stated_ones_budgets_are_the_least_that_runs_have_spent() -> None:
    curves = {
        A: {0: ONE, 1: curve([10, 25], [1, 2.5], [0.1, 0.2])},
        B: {0: curve([99], [9], [0.1])},
        LOCAL: {0: curve([40], [0], [0.1])},  # sends nothing, so it says nothing of bytes
    }
    assert budgets(curves, AtConfig()) == [Budget("time_s", 25, False), Budget("bytes", 2500, False)]
    time, num_bytes = budgets({A: {}, LOCAL: curves[LOCAL]}, AtConfig())
    assert (time.amount, math.isnan(num_bytes.amount)) == (40, True)
    assert math.isnan(budgets({A: {}}, AtConfig())[0].amount)


def test_stated_ones_take_the_place_of_those_of_their_kind() -> None:
    at = AtConfig.model_validate({"bytes": ["100 MB", "1.5 kB"]})
    found = budgets({A: {0: ONE}}, at)
    assert [one.accuracy_column for one in found] == [
        "accuracy_at_equal_time",
        "accuracy_at_100000000_bytes",
        "accuracy_at_1500_bytes",
    ]
    assert budgets({}, AtConfig.model_validate({"simulated": ["0.5 h", "500 ms"]}))[:2] == [
        Budget("time_s", 1800, True),
        Budget("time_s", 0.5, True),
    ]
    assert Budget("time_s", 0.5, True).accuracy_column == "accuracy_at_0.5_s"


C = Setting("c", "c")


def curve_of(costs: list[float], accuracy: list[float]) -> Columns:
    return curve(costs, [0.03 * cost for cost in costs], accuracy)


def test_a_mean_curve_changes_where_one_of_its_seeds_does() -> None:
    curves = {0: curve_of([1, 3], [0.2, 0.6]), 1: curve_of([2, 3, 5], [0.4, 0.2, 0.8])}
    costs, accuracy = mean_curve(curves, "time_s", "personal_mean")
    assert costs.tolist() == [2, 3, 5]
    assert accuracy.tolist() == pytest.approx([0.3, 0.4, 0.7])
    assert mean_curve(curves, "bytes", "personal_mean")[0].tolist() == [60, 90, 150]


def test_what_was_not_measured_is_passed_over() -> None:
    costs, accuracy = mean_curve({0: curve_of([1, 2, 3], [0.5, np.nan, 0.7])}, "time_s", "personal_mean")
    assert (costs.tolist(), accuracy.tolist()) == ([1, 3], [0.5, 0.7])
    assert not len(mean_curve({}, "time_s", "personal_mean")[0])
    assert not len(mean_curve({0: curve_of([1], [np.nan])}, "time_s", "personal_mean")[0])


def test_the_last_of_several_evaluations_at_one_cost_counts() -> None:
    costs, accuracy = mean_curve({0: curve_of([0, 0, 0], [0.5, 0.9, 0.7])}, "bytes", "personal_mean")
    assert (costs.tolist(), accuracy.tolist()) == ([0], [0.7])


def test_the_front_has_what_nobody_beats() -> None:
    curves = {
        A: {0: curve_of([1, 2, 8], [0.3, 0.5, 0.9])},
        B: {0: curve_of([2, 4, 6], [0.4, 0.6, 0.55])},
        C: {0: curve_of([3, 9], [0.1, 0.9])},
    }
    points = front(curves, "time_s", "personal_mean")
    assert points == [
        FrontPoint(1, 0.3, A),
        FrontPoint(2, 0.5, A),
        FrontPoint(4, 0.6, B),
        FrontPoint(8, 0.9, A),
    ]
    assert [[point.cost for point in piece] for piece in stretches(points)] == [[1, 2], [4], [8]]


CURVES = st.dictionaries(
    st.sampled_from([A, B, C]),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=6).map(
        lambda points: {0: curve_of(sorted(x for x, _ in points), [y / 10 for _, y in points])}
    ),
    min_size=1,
)


@given(CURVES)
def test_no_point_beats_one_of_the_front_and_every_other_is_beaten_or_equalled(
    curves: dict[Setting, dict[int, Columns]],
) -> None:
    points = front(curves, "time_s", "personal_mean")
    every = [
        (cost, accuracy)
        for its in curves.values()
        for cost, accuracy in zip(*mean_curve(its, "time_s", "personal_mean"), strict=True)
    ]
    for point in points:
        assert not any(c <= point.cost and a > point.accuracy for c, a in every)
        assert not any(c < point.cost and a >= point.accuracy for c, a in every)
    for cost, accuracy in every:
        assert any(point.cost <= cost and point.accuracy >= accuracy for point in points)
