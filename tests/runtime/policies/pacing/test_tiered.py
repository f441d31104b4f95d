"""Tiered rounds: clients of one speed at a time, and probabilities that follow accuracies."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from fedsim.errors import ScenarioError
from fedsim.runtime.policies.pacing.tiered import PLUGIN
from fedsim.runtime.run import run
from fedsim.scenario.build import build
from fedsim.scenario.load import load_scenario

SMALL: dict[str, Any] = {
    "run": {"name": "small", "rounds": 8},
    "data": {"name": "digits", "limit": 150, "partition": "iid"},
    "models": {"linear": {}},
    "algorithm": {"name": "fedavg"},
    "training": {"lr": 0.1, "batch_size": 8},
    "fleet": [{"count": 4, "overhead": "1 s"}, {"count": 4, "overhead": "9 s"}],
    "participation": {
        "clients_per_round": 2,
        "pacing": {"name": "tiered", "params": {"tiers": 2, "profiling": 4, "interval_rounds": 2}},
    },
}


def tiered(**config: Any) -> Any:
    return PLUGIN(PLUGIN.Config(**config))


def cohorts(done: Any) -> list[list[int]]:
    asked: list[list[int]] = []
    for call in done.of("begin", "ask"):
        if call[0] == "begin":
            asked.append([])
        else:
            asked[-1].append(call[1])
    return asked


def test_all_are_asked_once_and_then_those_of_one_speed(rounds: Any) -> None:
    # Even clients are fast.
    done = rounds(lambda client, number: 1.0 + 8 * (client % 2), num_clients=8, num_rounds=40, cohort_size=3)
    done.play(tiered(tiers=2, profiling=3, interval_rounds=5))
    asked = cohorts(done)
    assert asked[:3] == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert all(cohort in ([0, 2, 4], [1, 3, 5]) for cohort in asked[3:])
    fast = sum(cohort == [0, 2, 4] for cohort in asked[3:])
    assert 8 < fast < 29  # of 37, equally likely: a deviation of three standard errors and more is excluded


def test_when_all_have_been_asked_profiling_asks_anybody_and_the_unknown_are_median(rounds: Any) -> None:
    done = rounds(lambda client, number: 1.0, num_clients=2, num_rounds=3, cohort_size=2)
    done.play(tiered(tiers=1, profiling=3))
    assert cohorts(done) == [[0, 1]] * 3
    # Clients 0 to 2 have replied, after 1, 2 and 3 s; client 3 counts as the median, 2 s.
    done = rounds(lambda client, number: client + 1.0, num_clients=4, num_rounds=9, cohort_size=3)
    done.play(tiered(tiers=2, profiling=1, interval_rounds=100))
    assert {tuple(cohort) for cohort in cohorts(done)[1:]} == {(0, 1), (2, 3)}


def test_each_tier_is_chosen_as_often_as_it_has_credits(rounds: Any) -> None:
    done = rounds(lambda client, number: client + 1.0, num_clients=3, num_rounds=1 + 12, cohort_size=3)
    done.play(tiered(tiers=3, profiling=1, credits=2))
    asked = [cohort[0] for cohort in cohorts(done)[1:]]
    assert sorted(asked[:6]) == sorted(asked[6:]) == [0, 0, 1, 1, 2, 2]


def test_another_tier_is_drawn_where_nobody_is_there(rounds: Any) -> None:
    done = rounds(
        lambda client, number: client + 1.0, num_clients=2, num_rounds=8, cohort_size=2, there_from_s={1: 1e6}
    )
    done.play(tiered(tiers=2, profiling=1))
    assert cohorts(done) == [[0]] * 8


def test_tiers_that_learn_worse_are_asked_more_once_the_one_at_hand_stands_still(rounds: Any) -> None:
    def chosen(accuracy: Any) -> int:
        done = rounds(
            lambda client, number: client + 1.0,
            num_clients=2,
            num_rounds=601,
            cohort_size=2,
            accuracy=accuracy,
        )
        done.play(tiered(tiers=2, profiling=1, interval_rounds=10))
        return sum(cohort == [1] for cohort in cohorts(done)[1:])

    # The slow tier is worse: 2/3 of the rounds are its, 400; three standard deviations are 35.
    assert abs(chosen(lambda client, version: 0.9 - 0.5 * client) - 397) < 38
    # Both gain all the time, so nothing changes; three standard deviations are 37.
    assert abs(chosen(lambda client, version: version / 1000 - client) - 300) < 40


def test_a_tier_of_which_nobody_was_measured_is_as_accurate_as_the_others(rounds: Any) -> None:
    class Sampled(rounds):  # type: ignore[misc]
        async def accuracies(self) -> Mapping[int, float]:
            return {0: 0.9, 2: 0.3}

    done = Sampled(lambda client, number: client + 1.0, num_clients=3, num_rounds=601, cohort_size=3)
    done.play(tiered(tiers=3, profiling=1, interval_rounds=10))
    counts = np.bincount([cohort[0] for cohort in cohorts(done)[1:]])
    # 1, 2 and 3 sixths: nothing changes in the first ten rounds; three standard deviations are 37.
    assert np.abs(counts - [100, 200, 300]).max() < 45


def test_a_run_is_the_same_again_and_learns_from_tiers() -> None:
    first, again = (run(build(load_scenario(SMALL, {"engine.workers": workers}))) for workers in (1, 3))
    assert (first.trace_hash, first.model_hash) == (again.trace_hash, again.model_hash)
    columns = first.dispatches.columns()
    groups = [set(columns["client"][columns["round"] == number] // 4) for number in range(5, 9)]
    assert all(len(group) == 1 for group in groups)


def test_more_tiers_than_clients_are_refused_by_path() -> None:
    with pytest.raises(ScenarioError) as caught:
        build(load_scenario(SMALL, {"participation.pacing.params": {"tiers": 9}}))
    (fault,) = caught.value.faults
    assert fault.path == "participation.pacing.params.tiers"
    assert "9 tiers, and 8 clients can take part — write 8 or fewer" in str(fault)


@pytest.mark.parametrize("config", [{"tiers": 0}, {"profiling": 0}, {"interval_rounds": 0}, {"credits": 0}])
def test_settings_that_make_no_sense_are_refused(config: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="greater than or equal to 1"):
        PLUGIN.Config(**config)
