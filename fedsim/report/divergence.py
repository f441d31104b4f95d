"""Whether a run has diverged: most replies were not finite, or accuracy fell to chance and stays there.

Chance is the best accuracy of a model that always predicts one class: on the global test set the share of the
largest class, on the clients' own samples the largest mean over clients of the share of one class.
"""

from __future__ import annotations

from itertools import takewhile
from math import sqrt
from operator import itemgetter

import numpy as np

from fedsim.report.number_format import percent
from fedsim.runtime.evaluation import Accuracy
from fedsim.runtime.parts import Parts
from fedsim.runtime.records.result import RunResult
from fedsim.runtime.server.non_finite import is_of_non_finite

MAX_REJECTED = 0.25
"""Share of the replies of a run that may be rejected without a remark."""

LAST = 3
"""Accuracy stays at chance if at least so many evaluations at the end are at chance."""

ABOVE = 0.1, 5.0
"""An accuracy is clearly above chance if it is more than so much, and so many standard errors, above.

The standard error is that of guesses on as many samples, so few samples show little. With many samples the
points count: a model that has learned nothing does not guess each anew, and may be some points above by luck.
"""

AT = 0.01, 2.0
"""An accuracy is at chance if it is at most so much, or so many standard errors, above."""


def divergence(parts: Parts, result: RunResult) -> str | None:
    """Return in what way a run has diverged, and which rates may be too high; None if it has not."""
    if 2 * _num_non_finite(result) > _num_replies(result):
        return rejections(parts, result)
    return _fall(parts, result)


def rejections(parts: Parts, result: RunResult) -> str | None:
    """Return a remark if many replies of a run were rejected, else None."""
    num_rejected, num_replies = result.rejections.total(), _num_replies(result)
    if num_rejected <= MAX_REJECTED * num_replies:
        return None
    if 2 * (num_non_finite := _num_non_finite(result)) > num_rejected:
        return f"{num_non_finite} of {num_replies} replies rejected as not finite: {_question(parts)}"
    (reason, _), *_ = result.rejections.most_common(1)
    return (
        f"{num_rejected} of {num_replies} replies were rejected (most often: {reason}), so models learned "
        "from the others alone"
    )


def _num_replies(result: RunResult) -> int:
    return int(result.by_client["merged"].sum()) + result.rejections.total()


def _num_non_finite(result: RunResult) -> int:
    return sum(number for reason, number in result.rejections.items() if is_of_non_finite(reason))


def _question(parts: Parts) -> str:
    """Ask about the rate of training, and about those that the algorithm has beside it."""
    rates = {"training.lr": parts.training.lr}
    for name, value in parts.algorithm.config:
        if name.endswith("_lr") and isinstance(value, float):
            rates[f"algorithm.params.{name}"] = value
    return f"is {' or '.join(f'{name} = {rate:g}' for name, rate in rates.items())} too high?"


def _fall(parts: Parts, result: RunResult) -> str | None:
    """Say from where accuracy fell to chance, if it did and stays there."""
    final = result.final
    if final is None or parts.data.task.kind != "classification":
        return None
    name, on = ("mean", "") if final.mean is not None else ("global_", " on the global test set")
    every = [(row.round, getattr(row.accuracy, name)) for row in result.rounds if row.accuracy is not None]
    measured = [(number, accuracy) for number, accuracy in every if accuracy is not None]
    if len(measured) <= LAST:
        return None
    chance, error = _chance(parts, final)
    most = chance + max(AT[0], AT[1] * error)
    num_at_chance = sum(1 for _ in takewhile(lambda one: one[1] <= most, reversed(measured)))
    if not LAST <= num_at_chance < len(measured):
        return None
    best_round, best = max(measured[:-num_at_chance], key=itemgetter(1))
    if best <= chance + max(ABOVE[0], ABOVE[1] * error):
        return None
    fell = f"from {percent(best)} % (round {best_round}) to chance, {percent(chance)} %"
    since = measured[-num_at_chance][0]
    return f"accuracy{on} fell {fell}, and stays there since round {since}: {_question(parts)}"


def _chance(parts: Parts, accuracy: Accuracy) -> tuple[float, float]:
    """Return the accuracy that is chance, and its standard error."""
    data, split = parts.data, parts.evaluation.split
    own = [data.indices(client, split) for client in accuracy.clients.tolist()]
    sets = [data.global_test] if accuracy.mean is None else own
    labels = [data.y[positions].astype(np.int64) for positions in sets if len(positions)]
    shares = [np.bincount(some, minlength=data.task.num_outputs) / len(some) for some in labels]
    chance = float(np.mean(shares, axis=0).max())
    return chance, sqrt(chance * (1 - chance) * sum(1 / len(some) for some in labels)) / len(labels)
