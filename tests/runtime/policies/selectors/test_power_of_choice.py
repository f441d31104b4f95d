"""Power of choice: hand-computed choices; what is asked; misfits."""

from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError

from fedsim.algorithms.base import Setting
from fedsim.models import Architecture
from fedsim.models.linear import PLUGIN as LINEAR
from fedsim.params import Array
from fedsim.rng import Key
from fedsim.runtime.policies.selectors.base import Candidates, Fact, LossMeasure
from fedsim.runtime.policies.selectors.power_of_choice import PLUGIN, PowerOfChoice
from fedsim.task import Task

NAN = float("nan")
CLIENTS = np.array([2, 5, 6, 9])


def made(**params: object) -> PowerOfChoice:
    return PLUGIN(PLUGIN.Config.model_validate(params))


def offered(losses: list[float], sizes: tuple[int, ...] = (1, 1, 1, 1)) -> Candidates:
    """Return candidates 2, 5, 6 and 9 with these losses and sizes."""
    of_all, size_of_all = np.zeros(10), np.ones(10, np.int64)
    of_all[CLIENTS], size_of_all[CLIENTS] = losses, sizes

    def facts(fact: Fact) -> Array:
        assert fact == "losses"
        return of_all

    return Candidates(CLIENTS, CLIENTS[:0], None, 0.0, lambda clients: size_of_all[clients], facts)


def chosen(selector: PowerOfChoice, candidates: Candidates, count: int, seed: int = 0) -> list[int]:
    return sorted(selector.select(candidates, count, Key.root(seed)).tolist())


def test_of_those_who_answered_the_largest_losses_train() -> None:
    assert chosen(made(), offered([0.5, 2.0, 1.0, 0.1]), 2) == [5, 6]
    assert chosen(made(), offered([0.5, NAN, 1.0, 0.1]), 3) == [2, 6, 9]
    assert chosen(made(), offered([0.5, NAN, 1.0, 0.1]), 9) == [2, 5, 6, 9]


def test_equal_losses_are_as_likely() -> None:
    firsts = [chosen(made(), offered([1.0, 1.0, 1.0, 0.0]), 1, seed)[0] for seed in range(600)]
    counts = np.bincount(firsts, minlength=10)[CLIENTS]
    assert counts[3] == 0
    assert (np.abs(counts[:3] - 200) < 50).all()  # the standard deviation is 12


def test_twice_as_many_are_asked_in_proportion_to_their_samples() -> None:
    candidates = offered([0.0] * 4, sizes=(1, 2, 3, 4))
    assert len(made().asked(candidates, 2, Key.root(0))) == 4
    assert len(made(candidates=3).asked(candidates, 2, Key.root(0))) == 3
    assert len(made(candidates=1).asked(candidates, 2, Key.root(0))) == 2
    one = made(candidates=1)
    counts = np.bincount([one.asked(candidates, 1, Key.root(seed))[0] for seed in range(4000)], minlength=10)
    expected = 4000 * np.array([0.1, 0.2, 0.3, 0.4])
    assert np.all(np.abs(counts[CLIENTS] - expected) < 4 * np.sqrt(expected))


def test_without_a_question_the_last_losses_count_and_the_unknown_come_first() -> None:
    last = made(losses="last", candidates=4)
    assert (last.asks, last.measure) == (False, LossMeasure("mean", None))
    assert chosen(last, offered([0.5, 2.0, NAN, 0.1]), 2) == [5, 6]
    # Of three drawn at random, the one with the least loss is left out.
    choices = {
        tuple(chosen(made(losses="last", candidates=3), offered([4.0, 3.0, 2.0, 1.0]), 2, seed))
        for seed in range(99)
    }
    assert choices == {(2, 5), (2, 6), (5, 6)}


def test_a_few_samples_are_measured_where_that_is_wanted() -> None:
    assert made(samples=16).measure == LossMeasure("mean", 16)
    assert made(answer_within="5 s").answer_within_s == 5.0


def test_an_option_without_effect_is_refused() -> None:
    with pytest.raises(ValidationError, match="with 'last' nobody is asked"):
        made(losses="last", answer_within="5 s")


def test_fewer_candidates_than_train_are_refused() -> None:
    task = Task((2,), 2)
    linear = Architecture("linear", LINEAR(LINEAR.Config()), task)
    setting = Setting(task, {"linear": linear}, linear, 0, False, cohort_size=5)
    (fault,) = made(candidates=4).misfits(setting)
    assert (fault.path, fault.problem) == (
        "participation.selector.params.candidates",
        "4 candidates, of whom 5 are to train",
    )
    assert not [*made(candidates=5).misfits(setting), *made().misfits(setting)]
    # An asynchronous pacing asks for as many as are missing, not for a cohort.
    assert not list(made(candidates=4).misfits(replace(setting, merge_size=3)))
