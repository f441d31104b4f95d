"""Runs that have diverged, made by hand: what is said of them, and that others are not called so."""

from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedsim.bus import Ledger, Totals
from fedsim.data.federated import FederatedData, Holdings
from fedsim.engine.training_config import TrainingConfig
from fedsim.report.divergence import divergence, rejections
from fedsim.runtime.evaluation import Accuracy
from fedsim.runtime.parts import EvaluationConfig
from fedsim.runtime.records.result import RoundRow, RunResult
from fedsim.task import Task
from tests.report.conftest import _plugin, replayed

# Client 0 has 300 test samples of class 0 and 100 of class 1, client 1 has 200 of class 1: over clients the
# mean of the shares is 37.5 % and 62.5 %. The global test set has 60 samples of class 2 and 40 of class 0.
LABELS = [0] * 300 + [1] * 100 + [1] * 200 + [2] * 60 + [0] * 40
QUESTION = "is training.lr = 5 too high?"
NAN = "params holds NaN or an infinity"
LARGE = "params holds values beyond 1.8e+19, whose products overflow"
REFUSED = "the merge of exchange 'train' leaves the finite range: OverflowError: too large"
RUBBISH = "a frame of kind 'other' where one of kind 'update' belongs"


def parts_of(
    algorithm: str = "fedavg",
    every: int = 1,
    task: Task = Task((1,), 3),  # noqa: B008  # a value
    y: Any = LABELS,
) -> Any:
    """Return parts of which everything is known; one of ``every`` samples is there."""
    labels = np.array(y)[::every]
    ends = np.array([0, 400, 600]) // every
    data = FederatedData(
        task,
        np.empty((len(labels), 1), np.float32),
        labels,
        public=np.empty(0, np.int64),
        global_test=np.arange(ends[-1], len(labels)),
        num_clients=2,
        holdings={"test": Holdings(ends, np.arange(ends[-1]))},
    )
    return SimpleNamespace(
        data=data,
        evaluation=EvaluationConfig(),
        training=TrainingConfig(lr=5.0),
        algorithm=_plugin("fedsim.algorithms", algorithm),
    )


def result_of(
    merged: int = 1, rejected: dict[str, int] | None = None, rounds: Sequence[Accuracy | None] = ()
) -> RunResult:
    rows = [
        RoundRow(number, 0.0, 1.0, 0, 0, 0, 0, 0, Totals(), accuracy)
        for number, accuracy in enumerate(rounds, 1)
    ]
    by_client = {"merged": np.array([merged, 0])}
    return RunResult(1.0, rows, by_client, Ledger(), replayed([], 1), Counter(), Counter(rejected), "", "")


def personal(value: float) -> Accuracy:
    """Return an accuracy of two clients with this mean."""
    own = np.array([value + 0.05, value - 0.05])
    return Accuracy(np.arange(2), own, np.array([400, 200]), 0.99, np.ones(2), 1.0)


def global_(value: float) -> Accuracy:
    """Return an accuracy on the global test set alone."""
    return Accuracy(np.arange(2), np.full(2, np.nan), np.zeros(2, np.int64), value, np.ones(2), 1.0)


# Replies that are not finite


@pytest.mark.parametrize(
    ("merged", "rejected"), [(2, {NAN: 20, LARGE: 2}), (2, {REFUSED: 22}), (1, {NAN: 22, RUBBISH: 1})]
)
def test_most_replies_were_not_finite(merged: int, rejected: dict[str, int]) -> None:
    result = result_of(merged, rejected)
    said = f"22 of 24 replies rejected as not finite: {QUESTION}"
    assert divergence(parts_of(), result) == rejections(parts_of(), result) == said


def test_half_of_them_is_a_remark_but_no_divergence() -> None:
    result = result_of(12, {NAN: 12})
    assert rejections(parts_of(), result) == f"12 of 24 replies rejected as not finite: {QUESTION}"
    assert divergence(parts_of(), result) is None


@pytest.mark.parametrize(("rejected", "number"), [({RUBBISH: 22}, 22), ({RUBBISH: 6, NAN: 6}, 12)])
def test_other_rejections_are_no_divergence(rejected: dict[str, int], number: int) -> None:
    result = result_of(24 - number, rejected)
    assert rejections(parts_of(), result) == (
        f"{number} of 24 replies were rejected (most often: {RUBBISH}), so models learned from the others "
        "alone"
    )
    assert divergence(parts_of(), result) is None


@pytest.mark.parametrize(("merged", "rejected"), [(0, {}), (24, {}), (18, {NAN: 6})])
def test_few_rejections_are_nothing_to_speak_of(merged: int, rejected: dict[str, int]) -> None:
    assert rejections(parts_of(), result_of(merged, rejected)) is None
    assert divergence(parts_of(), result_of(merged, rejected)) is None


@pytest.mark.parametrize(
    ("algorithm", "asked"),
    [
        ("fedbuff", "is training.lr = 5 or algorithm.params.server_lr = 1 too high?"),
        ("fedmd", QUESTION),  # whose digest_lr is that of training
    ],
)
def test_rates_of_the_algorithm_are_named_too(algorithm: str, asked: str) -> None:
    said = f"2 of 3 replies rejected as not finite: {asked}"
    assert divergence(parts_of(algorithm), result_of(1, {NAN: 2})) == said


# Accuracy that fell to chance: 62.5 %, of which the standard error is
# sqrt(0.625 * 0.375 * (1 / 400 + 1 / 200)) / 2 = 2.1 %. At chance is up to 66.7 %, clearly above from 73.0 %.


@pytest.mark.parametrize(
    ("accuracies", "best", "since"),
    [
        ((0.9, 0.6, 0.6, 0.6), "90.0 % (round 1)", 2),
        ((0.5, 0.84, 0.84, 0.67, 0.66, 0.6, 0.62, 0.1), "84.0 % (round 2)", 5),
        ((0.735, 0.66, 0.66, 0.66), "73.5 % (round 1)", 2),
    ],
)
def test_accuracy_fell_to_chance(accuracies: Sequence[float], best: str, since: int) -> None:
    result = result_of(rounds=[personal(value) for value in accuracies])
    said = f"accuracy fell from {best} to chance, 62.5 %, and stays there since round {since}: {QUESTION}"
    assert divergence(parts_of(), result) == said


@pytest.mark.parametrize(
    "accuracies",
    [
        (),
        (0.9,),
        (0.9, 0.6, 0.6),  # two evaluations show little
        (0.9, 0.68, 0.6, 0.6),
        (0.9, 0.6, 0.6, 0.6, 0.68),  # it recovers
        (0.725, 0.6, 0.6, 0.6),  # it may have been luck
        (0.6, 0.6, 0.6, 0.6),  # it never learned
        (0.7, 0.8, 0.9, 0.9),
    ],
)
def test_accuracy_that_has_not_fallen_or_does_not_stay(accuracies: Sequence[float]) -> None:
    assert divergence(parts_of(), result_of(rounds=[personal(value) for value in accuracies])) is None


def test_few_samples_show_little() -> None:
    # Of six samples, the standard error is 21 %.
    result = result_of(rounds=[personal(value) for value in (0.9, 0.6, 0.6, 0.6)])
    assert divergence(parts_of(every=100), result) is None


def test_only_rounds_that_were_evaluated_count() -> None:
    rounds = [None, personal(0.9), None, personal(0.6), None, personal(0.6), None, personal(0.6), None]
    said = divergence(parts_of(), result_of(rounds=rounds))
    assert said is not None
    assert said.startswith(
        "accuracy fell from 90.0 % (round 2) to chance, 62.5 %, and stays there since round 4"
    )


def test_accuracy_on_the_global_test_set_where_there_is_no_other() -> None:
    # Chance is 60 %, with a standard error of 4.9 %: 69.8 % is at chance, 84.5 % is not clearly above it.
    said = divergence(parts_of(), result_of(rounds=[global_(value) for value in (0.85, 0.6, 0.69, 0.5)]))
    assert said == (
        "accuracy on the global test set fell from 85.0 % (round 1) to chance, 60.0 %, and stays there since "
        f"round 2: {QUESTION}"
    )
    rounds = [global_(value) for value in (0.84, 0.6, 0.69, 0.5)]
    assert divergence(parts_of(), result_of(rounds=rounds)) is None


def test_a_regression_has_no_chance() -> None:
    task, y = Task((1,), 1, "regression"), np.ones(len(LABELS), np.float32)
    rounds = [global_(value) for value in (0.9, 0.1, 0.1, 0.1)]
    assert divergence(parts_of(task=task, y=y), result_of(rounds=rounds)) is None
