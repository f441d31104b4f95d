"""How much real time a run or a study will take: a rehearsal, and trials of a few jobs of each kind.

This is for people who wait. No result depends on it, since other machines take other times.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from statistics import fmean
from time import perf_counter, process_time

import numpy as np

from fedsim.engine.cluster.call_sizes import CALL_S
from fedsim.engine.cost import Costs
from fedsim.engine.jobs import ClientSamples, Evaluate, Fit, GlobalTest, InlineSamples, Job, Predict
from fedsim.planning.rehearsal import JobKind, Learning, Rehearsal, Work, record_job, rehearse
from fedsim.quoting import MAX_SHOWN, shortened
from fedsim.report import number_format
from fedsim.runtime.evaluation import PARTS_PER_JOB
from fedsim.runtime.parts import Parts
from fedsim.runtime.run import RunResult
from fedsim.scenario import build
from fedsim.studies.plan import Setting, StudyPlan, with_one_worker

BASIS = "real time: a forecast from a few jobs, done on this machine now; it may be off by a factor of two"

REHEARSE_AGAIN_S = 0.2
"""A shorter rehearsal is repeated, without what happens once in a process."""

MIN_TRIAL_S = 0.02
"""A trial that took less is followed by one that is :data:`GROWTH` times as large."""

GROWTH = 4

MAX_WARMED_S = 0.125
"""A trial that took less is repeated, since the first of its form takes longer."""

MAX_FLOPS = 1e9
"""Operations of the first trial of a kind: a fraction of a second on any machine."""

MAX_POINTS_S = 3.0
"""Processor time after which no variant of a study is rehearsed at a further point of the grid."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """Real time of a run, without what comes before its first event.

    ``rounds`` is None where it depends on the accuracy, ``rounds_between`` evaluations need not be whole and
    is 0 where there are none. ``fit_s`` is the mean time of a fit on one core, None where nothing is fitted.
    """

    once_s: float
    round_s: float
    evaluation_s: float
    rounds: int | None
    rounds_between: float
    fit_s: float | None = None

    def run_s(self, rounds: int) -> float:
        """Return the time of a run of so many rounds; the last round is always evaluated."""
        evaluations = ceil(rounds / self.rounds_between) if self.rounds_between else 0
        return self.once_s + rounds * self.round_s + evaluations * self.evaluation_s

    @property
    def text(self) -> str:
        """The same in words."""
        if self.rounds is not None:
            return f"about {number_format.duration(self.run_s(self.rounds))}"
        evaluation_s = number_format.duration(self.evaluation_s)
        return f"about {number_format.duration(self.round_s)} for a round, {evaluation_s} for an evaluation"


@dataclass(frozen=True, slots=True)
class RehearsedSetting:
    """A setting of a study that was rehearsed, with the first of the values that are tuned.

    ``build_s`` is the real time until the first event of a run. ``forecast`` is None if a job failed in its
    trial, and ``problem`` then says so.
    """

    rehearsal: Rehearsal
    build_s: float
    forecast: Forecast | None
    problem: str = ""

    def run_s(self, rounds: int | None) -> float | None:
        """Return the time of a run of so many rounds; None where it depends on the accuracy."""
        if self.forecast is None:
            return None
        ends = [number for number in (rounds, self.forecast.rounds) if number is not None]
        return self.build_s + self.forecast.run_s(min(ends)) if ends else None


def tried(parts: Parts, rehearsal: Rehearsal) -> tuple[Forecast | None, str]:
    """Return a forecast; or None, if a job fails in its trial, and what to say then."""
    try:
        return forecast(parts, rehearsal), ""
    except Exception as error:  # of anybody's code: a run says what is wrong, and where
        return None, f"unknown, since a job failed when it was tried: {shortened(error, MAX_SHOWN)}"


def forecast(parts: Parts, rehearsal: Rehearsal) -> Forecast:
    """Return the real time of a run from trials by its executor, which is closed then."""
    once, each = rehearsal.once, rehearsal.each
    if once.real_s + each.real_s < REHEARSE_AGAIN_S:
        each = rehearse(parts).each
    evaluation = evaluation_jobs(parts, rehearsal.result)
    trials = _Trials(parts, [*once.works, *each.works, evaluation])
    each_s = each.real_s + sum(map(trials.seconds, each.works))
    # The rounds before the last one rehearsed are like it, but for what happens once.
    once_s = once.real_s + sum(map(trials.seconds, once.works)) - (rehearsal.rounds - 1) * each_s
    settings = parts.evaluation
    between: float = settings.rounds_between
    if settings.every_s is not None and rehearsal.pace_s:
        by_time = max(1.0, settings.every_s / rehearsal.pace_s)
        between = min(between, by_time) if between else by_time
    fit_s = trials.fit_seconds(rehearsal.each.works)
    return Forecast(max(0.0, once_s), each_s, trials.seconds(evaluation), rehearsal.planned, between, fit_s)


def hardly_pays(parts: Parts, real_time: Forecast) -> str | None:
    """Return why a run's jobs are too small for other machines; None if they are not, or stay here."""
    if not parts.executor.is_elsewhere or real_time.fit_s is None or real_time.fit_s >= CALL_S:
        return None
    takes, least = number_format.duration(real_time.fit_s), number_format.duration(CALL_S)
    return (
        f"a training takes about {takes} here: jobs of less than {least} hardly pay on other machines; "
        "engine.executor = 'threads' gives the same results"
    )


def rehearse_study(plan: StudyPlan, source: str) -> dict[Setting, RehearsedSetting]:
    """Return each variant at the first point of the grid, and at others while there is time, rehearsed."""
    began_s, known = process_time(), dict[Setting, RehearsedSetting]()
    points = list(dict.fromkeys(setting.point for setting in plan.settings))
    for setting in sorted(plan.settings, key=lambda setting: points.index(setting.point)):
        if setting.point != points[0] and process_time() - began_s > MAX_POINTS_S:
            break
        started_s = perf_counter()
        scenario = with_one_worker(plan.candidates[setting][0].scenario)
        parts = build(scenario, f"{source}, variant {setting.variant}")
        build_s = perf_counter() - started_s
        rehearsal = rehearse(parts)
        known[setting] = RehearsedSetting(rehearsal, build_s, *tried(parts, rehearsal))
    return {setting: known[setting] for setting in plan.settings if setting in known}


def study_s(plan: StudyPlan, known: Mapping[Setting, RehearsedSetting], jobs: int) -> float | None:
    """Return the time of all trials and runs of a study; None where it depends on the accuracy.

    A setting that was not rehearsed is taken to be like those of its variant.
    """
    tuning = len(plan.config.tune.seeds) if plan.config.tune is not None else 0
    longest = total = 0.0
    for setting, candidates in plan.candidates.items():
        of_variant = [own for other, own in known.items() if other.variant == setting.variant]
        alike = [known[setting]] if setting in known else of_variant
        rounds = candidates[0].scenario.run.rounds
        each_s = [run_s for own in alike if (run_s := own.run_s(rounds)) is not None]
        if len(each_s) < len(alike):
            return None
        longest = max(longest, fmean(each_s))
        total += fmean(each_s) * (len(plan.seeds) + tuning * len(candidates))
    return max(longest, total / jobs)


def evaluation_jobs(parts: Parts, result: RunResult) -> Work:
    """Return the jobs of one evaluation, given what an algorithm evaluates for some client at the end."""
    work: Work = {}
    for models in list(result.models.values())[:1]:
        split, batch_size = parts.evaluation.split, parts.evaluation.batch_size
        clients = range(min(parts.evaluation.clients, parts.data.num_clients))
        # Clients share a global model, and the jobs in which it is measured.
        size, model = (
            (1, models["personal"]) if "personal" in models else (PARTS_PER_JOB, next(iter(models.values())))
        )
        for start in range(0, len(clients), size):
            own = clients[start : start + size]
            samples = tuple(ClientSamples(client, split) for client in own)
            amount = sum(parts.data.num_samples(client, split) for client in own)
            if amount:
                record_job(work, Evaluate(model, samples, batch_size), amount)
        if "global" in models and len(parts.data.global_test):
            job = Evaluate(models["global"], (GlobalTest(),), batch_size)
            record_job(work, job, len(parts.data.global_test))
    return work


@dataclass(frozen=True, slots=True)
class _Rate:
    """Time of a kind of job for one of its amount, s, and whether a single job was timed."""

    seconds: float
    is_of_one: bool


class _Trials:
    """Does some jobs of each kind, with the executor of a run or one that is like it here."""

    def __init__(self, parts: Parts, works: Sequence[Work]) -> None:
        self._num_at_once = parts.executor.num_at_once
        self._rates: dict[Hashable, _Rate] = {}
        if not parts.executor.learns:
            return
        kinds: Work = {}
        for work in works:
            kinds |= work
        self._executor, self._resources = parts.executor.for_trials(), parts.resources()
        self._costs = Costs(self._resources)
        self._executor.open(self._resources)
        try:
            self._rates = {name: self._rate(kind) for name, kind in kinds.items()}
        finally:
            self._executor.close()

    def seconds(self, work: Work) -> float:
        """Return the time of some jobs, s; 0 where the executor does not learn."""
        if not self._rates:
            return 0.0
        return sum(
            kind.amount * rate.seconds / (min(self._num_at_once, kind.count) if rate.is_of_one else 1)
            for name, kind in work.items()
            for rate in [self._rates[name]]
        )

    def fit_seconds(self, works: Sequence[Work]) -> float | None:
        """Return the mean time of a fit, s; None where nothing is fitted."""
        fits = [(name, kind) for work in works for name, kind in work.items() if kind.is_of_fits]
        if not fits or not self._rates:
            return None
        total_s = sum(kind.amount * self._rates[name].seconds for name, kind in fits)
        return total_s / sum(kind.count for _, kind in fits)

    def _rate(self, kind: JobKind) -> _Rate:
        """Time ever more jobs and steps of a kind until they take long enough."""
        count, size = len(kind.examples), 1
        longest = max(job.num_steps if isinstance(job, Fit) else 1 for job, _ in kind.examples)
        while True:
            jobs = [self._part(job, amount, max(1, size // count)) for job, amount in kind.examples[:size]]
            taken_s = self._time_s(jobs)
            if taken_s < MAX_WARMED_S:
                taken_s = self._time_s(jobs)
            if taken_s >= MIN_TRIAL_S or size >= count * longest:
                return _Rate(taken_s / sum(amount for _, amount in jobs), len(jobs) == 1)
            size *= GROWTH

    def _time_s(self, jobs: Sequence[tuple[Job, float]]) -> float:
        began_s = perf_counter()
        promises = []
        for number, (job, amount) in enumerate(jobs):
            step_flops = amount / job.num_steps if isinstance(job, Fit) else None
            promises.append(self._executor.submit(job, (0, number), step_flops=step_flops))
        for promise in promises:
            self._executor.wait(promise)
        return perf_counter() - began_s

    def _part(self, job: Learning, amount: float, steps: int) -> tuple[Learning, float]:
        """Return a job with few steps, small batches or few samples, with its amount."""
        if isinstance(job, Fit):
            share = min(1.0, MAX_FLOPS / (amount / job.num_steps))
            streams = {
                name: replace(stream, batch_size=max(2, int(share * stream.batch_size)))
                for name, stream in job.streams.items()
            }
            job = replace(
                job, num_steps=min(steps, job.num_steps), streams=streams if share < 1 else job.streams
            )
            return job, self._costs.work(job).total.flops
        per_sample = self._costs.work(Predict(job.model, self._samples(job, 1), 1)).total.flops
        count = max(1, int(MAX_FLOPS / max(per_sample, 1.0)))
        if amount <= count:
            return job, amount
        samples = self._samples(job, count)
        if isinstance(job, Predict):
            return replace(job, samples=samples), count
        return replace(job, parts=(samples,)), count

    def _samples(self, job: Predict | Evaluate, count: int) -> InlineSamples:
        """Return so many samples of the form of a job's, without content."""
        task = self._resources.data.task
        shape, dtype = task.input_shape, np.dtype(task.dtype)
        if isinstance(job, Predict) and isinstance(job.samples, InlineSamples):  # features at a cut, perhaps
            shape, dtype = job.samples.x.shape[1:], job.samples.x.dtype
        return InlineSamples(np.zeros((count, *shape), dtype), np.zeros(count, task.label_dtype))
