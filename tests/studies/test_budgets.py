"""Accuracy within budgets of time and bytes, from curves made by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedsim.report.cost_breakdown import Columns
from fedsim.studies.budgets import Budget, accuracy_within, budgets, ended_before
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
    assert [one.column for one in found] == [
        "accuracy_at_equal_time",
        "accuracy_at_100000000_bytes",
        "accuracy_at_1500_bytes",
    ]
    assert budgets({}, AtConfig.model_validate({"simulated": ["0.5 h", "500 ms"]}))[:2] == [
        Budget("time_s", 1800, True),
        Budget("time_s", 0.5, True),
    ]
    assert Budget("time_s", 0.5, True).column == "accuracy_at_0.5_s"
