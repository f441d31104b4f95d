from __future__ import annotations

from typing import Any

import pytest

from fedsim.report.forecast import Forecast
from fedsim.studies import study_forecast
from fedsim.studies.plan import Setting, load_study
from fedsim.studies.study_forecast import Rehearsed, rehearse_study, study_s

AVG, LOCAL = Setting("fedavg", "fedavg"), Setting("local", "local")


def rehearsed(round_s: float, rounds: int | None = 3) -> Any:
    nothing: Any = None
    return Rehearsed(nothing, 1.0, Forecast(0.0, round_s, 0.0, rounds, 0))


def test_the_time_of_a_study_is_that_of_its_runs(tiny: dict[str, Any]) -> None:
    plan = load_study(tiny)  # three rounds, two variants, two seeds
    known = {AVG: rehearsed(2.0), LOCAL: rehearsed(4.0)}
    assert study_s(plan, known, 1) == 2 * 7 + 2 * 13
    assert study_s(plan, known, 2) == 20
    assert study_s(plan, known, 99) == 13  # as long as the longest run
    assert study_s(plan, {AVG: known[AVG]}, 1) == 4 * 7


def test_trials_take_time_too_and_rounds_of_a_grid_their_own(tiny: dict[str, Any]) -> None:
    plan = load_study(tiny | {"tune": {"seeds": [8, 9], "training.lr": [0.1, 0.2, 0.3]}})
    assert study_s(plan, {AVG: rehearsed(2.0)}, 1) == 2 * (2 + 6) * 7
    plan = load_study(tiny | {"seeds": [0], "grid": {"run.rounds": [2, 5]}})
    first = Setting("fedavg", "fedavg", (2,))
    assert study_s(plan, {first: rehearsed(2.0, None)}, 1) == 2 * (5 + 11)


def test_nobody_knows_how_long_it_takes_to_reach_an_accuracy(tiny: dict[str, Any]) -> None:
    del tiny["base"]["run"]
    plan = load_study(tiny | {"set": {"run.until": {"accuracy": 0.5}}})
    assert study_s(plan, {AVG: rehearsed(2.0, None)}, 1) is None


def test_the_first_point_of_each_variant_is_rehearsed_first(
    tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = load_study(tiny | {"grid": {"training.lr": [0.1, 0.2]}})
    spent_s = iter([0.0, 0.4, 99.0])
    monkeypatch.setattr(study_forecast, "process_time", lambda: next(spent_s))
    found = rehearse_study(plan, "tiny")
    assert [(one.variant, one.point) for one in found] == [("fedavg", (0.1,)), ("local", (0.1,))]
    assert all(one.rehearsal.planned == 3 for one in found.values())
    assert all((one.run_s(None) or 0) > 0 for one in found.values())


@pytest.mark.parametrize(
    ("spent_s", "num_tried", "total_s"),
    [
        (20.0, 2, 2 * 3 * 1 + 2 * 3 * 50),  # three rounds with each of two seeds
        (31.0, 1, 2 * 3 * 1 + 2 * 3 * 1),
    ],
)
def test_every_variant_is_tried_while_there_is_time(
    tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch, spent_s: float, num_tried: int, total_s: float
) -> None:
    clock_s = iter([0.0, spent_s])
    monkeypatch.setattr(study_forecast, "process_time", lambda: next(clock_s))
    monkeypatch.setattr(study_forecast, "perf_counter", lambda: 0.0)
    rounds_s = iter([1.0, 50.0])
    monkeypatch.setattr(study_forecast, "tried", lambda *_: (Forecast(0.0, next(rounds_s), 0.0, 3, 0), ""))
    plan = load_study(tiny)
    known = rehearse_study(plan, "tiny")
    assert list(known) == [AVG, LOCAL][:num_tried]
    assert study_s(plan, known, 1) == total_s


def test_a_setting_that_was_not_tried_is_like_those_of_its_algorithm_or_else_like_all(
    tiny: dict[str, Any],
) -> None:
    again = {"algorithm": "fedavg", "name": "again"}
    plan = load_study(tiny | {"seeds": [0], "variant": [*tiny["variant"], again]})
    known = {AVG: rehearsed(2.0), LOCAL: rehearsed(4.0)}
    assert study_s(plan, known, 1) == 7 + 13 + 7
    other = {"algorithm": "fedprox"}
    plan = load_study(tiny | {"seeds": [0], "variant": [*tiny["variant"], other]})
    assert study_s(plan, known, 1) == 7 + 13 + 10
