"""Answers computed by hand, from made-up curves."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from fedsim.report.cost_breakdown import Columns
from fedsim.studies.budgets import Budget
from fedsim.studies.plan import Setting
from fedsim.studies.study_answers import Answer, answers, reached_at
from fedsim.studies.study_file import StudyConfig
from tests.conftest import there

T2 = 12.706204736  # Student's t, 97.5 %, one degree of freedom
AVG, PROX = Setting("fedavg", "fedavg"), Setting("prox", "fedprox")


def asked(
    targets: Sequence[float] = (), of: str = "personal_mean", baseline: str | None = None
) -> StudyConfig:
    tables: dict[str, Any] = {"base": {}, "variant": [{"algorithm": "fedavg"}], "of": of}
    return StudyConfig.model_validate(tables | {"targets": list(targets), "baseline": baseline})


def curve(accuracy: list[float], time_s: list[float], kilobytes: list[int], **more: Any) -> Columns:
    count = len(accuracy)
    down = 1000 * np.array(kilobytes)
    columns = {
        "round": np.arange(1, count + 1),
        "simulated_s": np.array(time_s, float),
        "bytes_up": 2 * down,
        "bytes_down": down,
        "bytes_plain_up": 4 * down,
        "bytes_plain_down": 2 * down,
        "parameters_up": down // 2,
        "parameters_down": down // 4,
        "accuracy_personal_mean": np.array(accuracy),
        "accuracy_worst_decile": np.array(accuracy) / 2,
        "accuracy_global": np.full(count, np.nan),
        "accuracy_std": np.full(count, 0.1),
        "accuracy_jain": np.full(count, 0.9),
        "wasted_s": np.zeros(count),
        "wasted_bytes": np.zeros(count, int),
        "joules": np.full(count, np.nan),
        "carbon_g": np.full(count, np.nan),
        "work_s": np.zeros(count),
        "staleness_so_far": np.zeros(count),
    }
    return columns | {name: np.array(values) for name, values in more.items()}


CURVES = {
    AVG: {
        0: curve([0.2, 0.7, 0.6], [10, 20, 30], [1, 2, 3]),
        1: curve([0.1, 0.5, 0.65], [12, 22, 32], [1, 2, 3]),
        2: curve([0.1, 0.2, 0.3], [11, 21, 31], [1, 2, 3]),
    },
    PROX: {
        0: curve([0.61, 0.7, 0.8], [8, 16, 24], [1, 2, 3]),
        1: curve([0.2, 0.62, 0.9], [9, 18, 27], [1, 2, 3]),
        2: curve([0.1, 0.2, 0.6], [10, 20, 30], [1, 2, 3]),
    },
}


def found(setting: Setting, target: float = 0.6, **options: Any) -> Answer:
    of, baseline = options.get("of", "personal_mean"), options.get("baseline", "fedavg")
    every = answers(CURVES, asked([0.3, target], of, baseline))
    (one,) = [answer for answer in every if (answer.setting, answer.target) == (setting, target)]
    return one


def mean(answer: Answer, name: str) -> float | None:
    one = answer.figures[name]
    return None if one is None else one.mean


def test_costs_are_means_over_the_seeds_that_have_reached_the_target() -> None:
    # Seed 0 at 20 s and 2 kB down, although it falls again; seed 1 at 32 s and 3 kB; seed 2 never.
    answer = found(AVG)
    assert (answer.seeds, answer.reached) == (3, 2)
    time = there(answer.figures["time_to_target_s"])
    assert (time.mean, time.count) == (26.0, 2)
    assert time.half == pytest.approx(T2 * 6)  # the values are 6 away from their mean: stdev / sqrt(2) is 6
    assert mean(answer, "bytes_down_to_target") == 2500
    assert mean(answer, "bytes_up_to_target") == 5000
    assert mean(answer, "bytes_to_target") == 7500
    assert mean(answer, "bytes_plain_to_target") == 15000
    assert mean(answer, "parameters_up_to_target") == 1250
    assert mean(answer, "parameters_down_to_target") == 625
    assert mean(answer, "rounds_to_target") == 2.5
    assert mean(answer, "joules_to_target") is None
    assert mean(answer, "carbon_to_target_g") is None


def test_energy_to_a_target_is_known_where_it_is_computed() -> None:
    one = curve([0.2, 0.7], [10, 20], [1, 2], joules=[5.0, 9.0], carbon_g=[np.nan, np.nan])
    (answer,) = answers({AVG: {0: one}}, asked([0.6]))
    assert mean(answer, "joules_to_target") == 9
    assert mean(answer, "joules") == 9
    assert mean(answer, "carbon_to_target_g") is None


def test_a_target_is_reached_at_the_first_evaluation_that_shows_it() -> None:
    one = curve([0.1, np.nan, 0.3, 0.2, 0.5], [1, 2, 3, 4, 5], [1, 2, 3, 4, 5])
    assert reached_at(one, 0.3, "personal_mean") == 2
    assert reached_at(one, 0.31, "personal_mean") == 4
    assert reached_at(one, 0.51, "personal_mean") is None
    assert reached_at(one, 0.25, "personal_worst_decile") == 4
    assert reached_at(one, 0.01, "global") is None


def test_best_and_final_accuracy_and_fairness_are_over_all_seeds() -> None:
    answer = found(AVG)
    assert mean(answer, "best_accuracy") == pytest.approx((0.7 + 0.65 + 0.3) / 3)
    assert mean(answer, "final_accuracy") == pytest.approx((0.6 + 0.65 + 0.3) / 3)
    assert mean(answer, "final_accuracy_worst_decile") == pytest.approx((0.6 + 0.65 + 0.3) / 6)
    assert mean(answer, "final_accuracy_std") == pytest.approx(0.1)
    assert mean(answer, "final_accuracy_jain") == pytest.approx(0.9)
    assert mean(found(AVG, of="global"), "final_accuracy") is None


def test_differences_are_paired_by_seed() -> None:
    answer = found(PROX)
    assert answer.reached == 3
    # Both reach it with seeds 0 and 1: 8 - 20 and 18 - 32.
    time = there(answer.differences["time_to_target_s"])
    assert (time.mean, time.count) == (-13.0, 2)
    assert time.half == pytest.approx(T2 * 1)
    final = there(answer.differences["final_accuracy"])
    assert final.mean == pytest.approx((0.2 + 0.25 + 0.3) / 3)
    assert final.count == 3
    assert not found(AVG).differences
    assert not found(PROX, baseline=None).differences


def test_a_target_that_nobody_reaches_costs_nothing_that_is_known() -> None:
    answer = found(AVG, 0.99)
    assert (answer.reached, answer.figures["time_to_target_s"]) == (0, None)
    assert found(PROX, 0.99).differences["time_to_target_s"] is None


def test_without_targets_and_without_runs() -> None:
    first, second = answers({AVG: {}, PROX: CURVES[PROX]}, asked())
    assert (first.target, first.seeds, first.figures["final_accuracy"]) == (None, 0, None)
    assert (second.seeds, second.reached) == (3, 0)
    assert mean(second, "best_accuracy") == pytest.approx((0.8 + 0.9 + 0.6) / 3)


def test_waste_is_known_with_its_share_and_staleness_at_the_end() -> None:
    more = {"work_s": [40.0, 80.0], "wasted_s": [0.0, 20.0], "wasted_bytes": [0, 600]}
    one = curve([0.5, 0.5], [1, 2], [1, 2], **more, staleness_so_far=[np.nan, 0.75])
    (answer,) = answers({AVG: {0: one}}, asked())
    assert mean(answer, "wasted_s") == 20
    assert mean(answer, "wasted_s_share") == 0.25
    assert mean(answer, "wasted_bytes") == 600
    assert mean(answer, "wasted_bytes_share") == 0.1
    assert mean(answer, "staleness_mean") == 0.75
    # No work and no traffic: nothing of which there could be a share.
    nothing = curve([0.5], [1], [0])
    (answer,) = answers({AVG: {0: nothing}}, asked())
    assert mean(answer, "wasted_s") == 0
    assert mean(answer, "wasted_s_share") is None
    assert mean(answer, "wasted_bytes_share") is None


def test_accuracies_within_a_budget_are_paired_too() -> None:
    at = [Budget("time_s", 20.0, True), Budget("bytes", 8000.0, False)]
    _, prox = answers(CURVES, asked(baseline="fedavg"), at)
    # At 20 s prox has 0.7, 0.62 and 0.2, fedavg 0.7, 0.1 and 0.1; within 8 kB both have their second values.
    assert mean(prox, "accuracy_at_20_s") == pytest.approx((0.7 + 0.62 + 0.2) / 3)
    assert mean(prox, "accuracy_at_equal_bytes") == pytest.approx((0.7 + 0.62 + 0.2) / 3)
    difference = there(prox.differences["accuracy_at_20_s"])
    assert difference.mean == pytest.approx((0.0 + 0.52 + 0.1) / 3)
    assert difference.count == 3
    assert prox.ended_before == {"accuracy_at_20_s": 0, "accuracy_at_equal_bytes": 0}


def test_points_of_a_grid_are_compared_with_the_baseline_at_the_same_point() -> None:
    small, large = Setting("fedavg", "fedavg", (6,)), Setting("fedavg", "fedavg", (12,))
    prox = Setting("prox", "fedprox", (12,))
    curves = {
        small: {0: curve([0.9], [1], [1])},
        large: {0: curve([0.9], [5], [1])},
        prox: {0: curve([0.9], [7], [1])},
    }
    *_, last = answers(curves, asked([0.5], baseline="fedavg"))
    difference = there(last.differences["time_to_target_s"])
    assert (difference.mean, difference.half) == (2.0, None)
