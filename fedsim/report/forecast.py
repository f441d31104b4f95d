"""How long a run will take for real: the simulation as in its rehearsal, its jobs as trials say."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from fedsim.engine.cluster.call_sizes import CALL_S
from fedsim.quoting import MOST_SAID, shortened
from fedsim.report import number_format
from fedsim.report.real_time import evaluation, seconds, seconds_a_fit
from fedsim.report.rehearsal import Rehearsal, rehearse
from fedsim.runtime.parts import Parts

BASIS = "real time: a forecast from a few jobs, done on this machine now; it may be off by a factor of two"

AGAIN_S = 0.2
"""A rehearsal that took less is held again."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """Real time of a run, without what comes before its first event."""

    once_s: float
    round_s: float
    evaluation_s: float
    rounds: int | None
    rounds_between: float

    def run_s(self, rounds: int) -> float:
        """Return how long a run of so many rounds takes; the last round is always evaluated."""
        evaluations = ceil(rounds / self.rounds_between) if self.rounds_between else 0
        return self.once_s + rounds * self.round_s + evaluations * self.evaluation_s

    @property
    def text(self) -> str:
        """The same in words."""
        if self.rounds is not None:
            return f"about {number_format.duration(self.run_s(self.rounds))}"
        evaluation_s = number_format.duration(self.evaluation_s)
        return f"about {number_format.duration(self.round_s)} for a round, {evaluation_s} for an evaluation"


def tried(parts: Parts, rehearsal: Rehearsal) -> tuple[Forecast | None, str]:
    """Return a forecast; or None, where a job fails when it is tried, and what to say then."""
    try:
        return forecast(parts, rehearsal), ""
    except Exception as error:  # of anybody's code: a run says what is wrong, and where
        return None, f"unknown, since a job failed when it was tried: {shortened(error, MOST_SAID)}"


def hardly_pays(parts: Parts, rehearsal: Rehearsal) -> str | None:
    """Return why a run's jobs are too small for other machines; None if they are not, or stay here."""
    if not parts.executor.is_elsewhere:
        return None
    fit_s = seconds_a_fit(parts, *rehearsal.each.works)
    if fit_s is None or fit_s >= CALL_S:
        return None
    takes, least = number_format.duration(fit_s), number_format.duration(CALL_S)
    return (
        f"a training takes about {takes} here: jobs of less than {least} hardly pay on other machines; "
        "engine.executor = 'threads' gives the same results"
    )


def forecast(parts: Parts, rehearsal: Rehearsal) -> Forecast:
    """Return how long a run will take for real."""
    once, each = rehearsal.once, rehearsal.each
    if once.real_s + each.real_s < AGAIN_S:
        each = rehearse(parts).each  # with all counted that is counted once
    works = [*once.works, *each.works, evaluation(parts, rehearsal.result)]
    *taken_s, evaluation_s = seconds(parts, *works)
    settings = parts.evaluation
    between: float = settings.rounds_between
    if settings.every_s is not None and rehearsal.pace_s:
        by_time = max(1.0, settings.every_s / rehearsal.pace_s)
        between = min(between, by_time) if between else by_time
    # The rounds before the last one rehearsed are like it, but for what happens once.
    rounds_s = (rehearsal.rounds - 1) * (each.real_s + sum(taken_s[len(once.works) :]))
    once_s = once.real_s + sum(taken_s[: len(once.works)]) - rounds_s
    return Forecast(
        max(0.0, once_s),
        each.real_s + sum(taken_s[len(once.works) :]),
        evaluation_s if parts.executor.learns else 0.0,
        rehearsal.planned,
        between,
    )
