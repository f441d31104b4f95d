"""Sentences of made-up studies, whose runs are evaluated after 10 s and 1 kB, 20 s and 2 kB, and so on."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from fedsim.report.cost_breakdown import Columns, Figures
from fedsim.studies.answer_files import Answers
from fedsim.studies.answer_sentence import answer_sentence
from fedsim.studies.plan import load_study
from fedsim.studies.study_answers import COSTS, LAST, SHARES

NAN = float("nan")
ACCURACIES = ("accuracy_personal_mean", "accuracy_worst_decile", "accuracy_global")

Runs = Sequence[Sequence[float]]
"""The accuracy at each evaluation of each run, seed by seed."""


def curve(accuracy: Sequence[float]) -> Columns:
    steps = np.arange(1, len(accuracy) + 1)
    names = {*LAST.values(), *(name for parts in COSTS.values() for name in parts)}
    names |= {name for part, whole in SHARES.values() for name in (part, *whole)}
    zeros, shown = np.zeros(len(accuracy)), np.array(accuracy, float)
    columns = dict.fromkeys(names, zeros) | dict.fromkeys(ACCURACIES, shown)
    return columns | {"simulated_s": 10.0 * steps, "bytes_up": 400 * steps, "bytes_down": 600 * steps}


def said(
    tiny: Mapping[str, Any],
    runs: Mapping[Any, Runs],
    *,
    ends: Mapping[Any, Figures] | None = None,
    **changes: Any,
) -> str:
    """Return what is said of a study with such runs, by variant, or by variant and rounds."""
    keys = [key if isinstance(key, tuple) else (key,) for key in runs]
    study: dict[str, Any] = {**tiny, "targets": [], "seeds": list(range(len(next(iter(runs.values())))))}
    del study["baseline"]
    study["variant"] = [
        {"name": name, "algorithm": "local"} for name in dict.fromkeys(key[0] for key in keys)
    ]
    if points := list(dict.fromkeys(key[1] for key in keys if len(key) > 1)):
        study["grid"] = {"run.rounds": points}
    plan = load_study(study | changes)
    of_setting = {
        setting: (setting.variant, *setting.point) if points else setting.variant for setting in plan.settings
    }
    curves = {
        setting: {seed: curve(one) for seed, one in enumerate(runs[key]) if one}
        for setting, key in of_setting.items()
    }
    usual: Figures = {"simulated_s": 60.0, "bytes": 5000.0}
    usual = {**usual, "accuracy": None, "global": None, "loss": None, "global_loss": None}
    all_ends = {
        setting: {**usual, **(ends or {}).get(key, {})}
        for setting, key in of_setting.items()
        if curves[setting]
    }
    return answer_sentence(Answers(plan, curves, all_ends, {}, (), (), {}, (), (), {}))


def test_the_fastest_comes_first_and_who_fell_short_last(tiny: dict[str, Any]) -> None:
    runs = {"slow": [[0.5, 0.8, 0.9]], "never": [[0.5, 0.6]], "fast": [[0.86]]}
    assert said(tiny, runs, targets=[0.85]) == (
        "To 85 % accuracy: fast took 10 s of simulated time and 1 kB, slow 30 s and 3 kB; "
        "never did not reach it."
    )


@pytest.mark.parametrize(
    ("best", "named"),
    [
        ((0.97, 0.5, 0.93), "90"),  # the highest multiple of 5 % that two reach
        ((0.97, 0.2), "20"),
        ((0.97,), "95"),  # of one alone, that it reaches
        ((1.0, 1.0), "95"),
        ((0.05, 0.049), "4"),
        ((0.3, 0.004), "30"),  # two reach nothing that is round
    ],
)
def test_without_targets_it_is_a_round_accuracy(
    tiny: dict[str, Any], best: tuple[float, ...], named: str
) -> None:
    sentence = said(tiny, {f"v{number}": [[one]] for number, one in enumerate(best)})
    assert sentence.startswith(f"To {named} % accuracy: v0 took 10 s")


def test_of_several_targets_it_is_the_highest_that_two_reach(tiny: dict[str, Any]) -> None:
    runs = {"a": [[0.7, 0.95]], "b": [[0.75, 0.8]]}
    assert said(tiny, runs, targets=[0.6, 0.9, 0.72]).startswith("To 72 % accuracy: b took 10 s")


def test_a_target_that_only_one_reaches_is_told_of_it(tiny: dict[str, Any]) -> None:
    runs = {"a": [[0.7, 0.95]], "b": [[0.75, 0.8]]}
    assert said(tiny, runs, targets=[0.9, 0.99]) == (
        "To 90 % accuracy: a took 20 s of simulated time and 2 kB; b did not reach it."
    )


def test_a_target_that_nobody_reaches(tiny: dict[str, Any]) -> None:
    runs = {"a": [[0.7, 0.6]], "b": [[0.612, 0.5]]}
    assert said(tiny, runs, targets=[0.9, 0.8]) == (
        "80 % accuracy was not reached: the best was 70.0 %, of a."
    )


def test_seeds_that_fall_short_are_counted(tiny: dict[str, Any]) -> None:
    runs = {"a": [[0.7], [0.5]], "b": [[0.5, 0.7], [0.5, 0.5, 0.5, 0.7]]}
    assert said(tiny, runs, targets=[0.6]) == (
        # b comes first, since a has not reached it with every seed.
        "To 60 % accuracy (means over seeds): b took 30 s of simulated time and 3 kB, "
        "a 10 s and 1 kB (1 of 2 seeds)."
    )


def test_more_seeds_come_before_less_time(tiny: dict[str, Any]) -> None:
    short, good = [0.1], [0.7]
    runs = {
        "one": [good, short, short],
        "two": [[0.1, 0.7], [0.1, 0.7], short],
        "some are missing": [[0.1, 0.1, 0.7]] * 2 + [[]],
    }
    assert said(tiny, runs, targets=[0.6]) == (
        "To 60 % accuracy (means over seeds): two took 20 s of simulated time and 2 kB (2 of 3 seeds), "
        "some are missing 30 s and 3 kB (2 of 3 seeds), one 10 s and 1 kB (1 of 3 seeds); "
        "missing: some-are-missing-seed2."
    )


def test_of_many_only_those_with_the_most_seeds_are_called_the_best(tiny: dict[str, Any]) -> None:
    all_reach = {f"v{number}": [[*[0.1] * number, 0.1, 0.7]] * 2 for number in range(4)}
    runs = all_reach | {"lucky": [[0.7], [0.1]]}
    assert said(tiny, runs, targets=[0.6]) == (
        "4 of 5 reached 60 % accuracy (means over seeds) with every seed: "
        "v0 took the least time and the fewest bytes, 20 s of simulated time and 2 kB."
    )
    runs = {name: [[0.7] * 2, [0.7] * 2, [0.1]] for name in all_reach} | {"lucky": [[0.7], [0.1], [0.1]]}
    assert said(tiny, runs, targets=[0.6]).startswith(
        "4 of 5 reached 60 % accuracy (means over seeds) with 2 seeds, others with fewer: v0 took the least"
    )


def test_at_each_point_more_seeds_come_before_less_time(tiny: dict[str, Any]) -> None:
    runs = {
        ("a", 1): [[0.7], [0.1], [0.1]],
        ("b", 1): [[0.1, 0.7], [0.1, 0.7], [0.1]],
        ("a", 2): [[0.7]] * 3,
        ("b", 2): [[0.7], [0.7], [0.1]],
    }
    assert said(tiny, runs, targets=[0.6]) == (
        "The fastest to 60 % accuracy (means over seeds; of variants that reached it with the most seeds): "
        "b rounds=1 (20 s of simulated time and 2 kB (2 of 3 seeds)), a rounds=2 (10 s and 1 kB)."
    )


def test_runs_that_are_not_there_are_named(tiny: dict[str, Any]) -> None:
    runs: dict[str, Runs] = {"a": [[0.7], []], "b": [[], []]}
    assert said(tiny, runs) == (
        "To 70 % accuracy (means over seeds): a took 10 s of simulated time and 1 kB (1 of 2 seeds); "
        "missing: b-seed0 and 2 more."
    )
    assert said(tiny, {"a": [[]]}) == "No run has ended; missing: a-seed0."


@pytest.mark.parametrize(
    ("of", "words"),
    [
        ("personal_worst_decile", "mean over the 10 % least accurate clients"),
        ("global", "on the global test set"),
    ],
)
def test_other_accuracies_are_named(tiny: dict[str, Any], of: str, words: str) -> None:
    sentence = said(tiny, {"a": [[0.7]], "b": [[NAN]]}, of=of)
    assert sentence == (
        f"To 70 % accuracy ({words}): a took 10 s of simulated time and 1 kB; it was not measured for b."
    )


def test_of_many_only_the_best_are_named(tiny: dict[str, Any]) -> None:
    runs: dict[str, Runs] = {f"v{number}": [[*[0.1] * number, 0.7]] for number in range(4)}
    runs |= {"low": [[0.2]]}
    assert said(tiny, runs) == (
        "4 of 5 reached 70 % accuracy: "
        "v0 took the least time and the fewest bytes, 10 s of simulated time and 1 kB."
    )


def test_of_many_one_may_be_the_fastest_and_another_send_least(
    tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = {"bytes_up": np.zeros(2), "bytes_down": np.zeros(2)}
    thrifty = {**curve([0.1, 0.7]), **nothing}
    monkeypatch.setattr(f"{__name__}.curve", lambda one, make=curve: make(one) if one[1:] == [] else thrifty)
    runs: dict[str, Runs] = {f"v{number}": [[0.7]] for number in range(4)}
    assert said(tiny, runs | {"thrifty": [[0.1, 0.7]]}) == (
        "5 of 5 reached 70 % accuracy: v0 took the least time (10 s of simulated time and 1 kB), "
        "thrifty the fewest bytes (20 s and 0 B)."
    )


def test_the_fastest_at_each_point_of_a_grid(tiny: dict[str, Any]) -> None:
    runs = {("a", 1): [[0.7]], ("b", 1): [[0.5, 0.9]], ("a", 2): [[0.5, 0.72, 0.8]], ("b", 2): [[0.8]]}
    assert said(tiny, runs) == (
        "The fastest to 80 % accuracy: "
        "b rounds=1 (20 s of simulated time and 2 kB), b rounds=2 (10 s and 1 kB)."
    )
    assert said(tiny, runs, targets=[0.6]) == (
        "The fastest to 60 % accuracy: "
        "a rounds=1 (10 s of simulated time and 1 kB), b rounds=2 (10 s and 1 kB)."
    )
    assert said(tiny, runs, targets=[0.85]) == (
        "The fastest to 85 % accuracy: "
        "b rounds=1 (20 s of simulated time and 2 kB); at rounds=2 nobody reached it."
    )


def test_of_many_points_those_are_counted_at_which_a_variant_is_the_fastest(tiny: dict[str, Any]) -> None:
    runs = {(name, rounds): [[0.5, 0.7]] for rounds in range(1, 7) for name in "ab"}
    runs |= {("b", rounds): [[0.7]] for rounds in (1, 2, 3, 4)}
    runs |= {(name, 6): [[0.1]] for name in "ab"}
    assert said(tiny, runs, targets=[0.7]) == (
        "The fastest to 70 % accuracy: b at 4 of 6 points of the grid, a at 1; at 1 nobody reached it."
    )


def test_of_one_variant_the_points_are_compared(tiny: dict[str, Any]) -> None:
    runs = {("a", 1): [[0.5, 0.7]], ("a", 2): [[0.7]], ("a", 3): [[0.6]]}
    assert said(tiny, runs) == (
        "To 70 % accuracy: rounds=2 took 10 s of simulated time and 1 kB, rounds=1 20 s and 2 kB; "
        "rounds=3 did not reach it."
    )


def test_of_a_regression_it_says_the_losses(tiny: dict[str, Any]) -> None:
    ends = {"a": {"loss": 0.5}, "b": {"loss": 0.01234, "simulated_s": 90.0, "bytes": 0.0}}
    assert said(tiny, {"a": [[NAN, NAN]], "b": [[NAN]]}, ends=ends) == (
        "At the end: b has a loss of 0.0123 after 1 min 30 s of simulated time and 0 B, "
        "a 0.5 after 1 min and 5 kB."
    )


def test_an_accuracy_too_low_for_round_ones_is_that_at_the_end(tiny: dict[str, Any]) -> None:
    ends = {"a": {"accuracy": 0.002}, "b": {"accuracy": 0.004}}
    assert said(tiny, {"a": [[0.002]], "b": [[0.004]]}, ends=ends) == (
        "At the end: b has an accuracy of 0.4 % after 1 min of simulated time and 5 kB, "
        "a 0.2 % after 1 min and 5 kB."
    )


def test_where_nothing_was_measured_it_says_what_runs_took(tiny: dict[str, Any]) -> None:
    runs: dict[str, Runs] = {f"v{number}": [[NAN]] for number in range(5)}
    ends = {f"v{number}": {"simulated_s": 50.0 - 10 * number} for number in range(5)}
    few = {name: runs[name] for name in ("v0", "v1")}
    assert said(tiny, few, ends=ends, targets=[0.5]) == (
        "No accuracy was measured: v1 took 40 s of simulated time and 5 kB, v0 50 s and 5 kB."
    )
    assert said(tiny, runs, ends=ends).startswith(
        "No accuracy was measured (the fastest 4 of 5): v4 took 10 s of simulated time and 5 kB, v3 20 s"
    )
