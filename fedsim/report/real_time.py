"""How long work takes for real, from a few jobs that are done and from the size of all others.

This is for people who wait. Nothing of it enters a result, as another machine, or this one at another hour,
takes another time.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, TypeAlias

import numpy as np

from fedsim.engine.cost import Costs
from fedsim.engine.executors.base import Due, Executor, Promise
from fedsim.engine.jobs import (
    ClientSamples,
    Evaluate,
    Fit,
    GlobalTest,
    InlineSamples,
    Job,
    Predict,
)
from fedsim.engine.worker_state import Resources
from fedsim.runtime.evaluation import PARTS_PER_JOB
from fedsim.runtime.parts import Parts
from fedsim.runtime.run import RunResult

MOST_TRIED = 64
"""Jobs of a kind that are kept to be tried."""

TRIAL_S = 0.02
"""How long a trial should take, s, ..."""

GROWTH = 4
"""... how many times as large as the one before each is, ..."""

FIRST_FLOPS = 1e9
"""... and of how many operations the first one is at most: a fraction of a second on any machine."""

MOST_S = 0.25
"""No further kind of job is tried once trials have taken so long, s, if one like it has been."""


Learning: TypeAlias = Fit | Predict | Evaluate
"""Jobs that an executor without learning does not do."""


@dataclass(slots=True)
class Kind:
    """Jobs that do the same with other values."""

    count: int = 0
    amount: float = 0.0
    tried: list[tuple[Learning, float]] = field(default_factory=list)


Work: TypeAlias = dict[Hashable, Kind]
"""Jobs by what they have in common."""


def add(work: Work, job: Learning, amount: float) -> None:
    """Add a job to those of its kind."""
    models = [job.model] if not isinstance(job, Fit) else list(job.models.values())
    step = type(job.step) if isinstance(job, Fit) else None
    kind = work.setdefault((type(job), step, *(model.architecture for model in models)), Kind())
    kind.count += 1
    kind.amount += amount
    if len(kind.tried) < MOST_TRIED:
        kind.tried.append((job, amount))


class Listening(Executor):
    """Hears of jobs, and leaves them to another executor, which need not do them."""

    learns = False

    def __init__(self, inner: Executor) -> None:
        super().__init__(inner.config)
        self._inner = inner
        self.heard: Work = {}

    def taken(self) -> Work:
        """Return the jobs recorded since the last call."""
        work, self.heard = self.heard, {}
        return work

    def open(self, resources: Resources) -> None:
        """Open the other one."""
        self._resources = resources
        self._inner.open(resources)

    def submit(self, job: Job, due: Due, *, step_flops: float | None = None) -> Promise:
        """Hear of a job. Calls are not noted: every executor does them."""
        match job:
            case Fit() if step_flops:
                add(self.heard, job, step_flops * job.num_steps)
            case Predict():
                add(self.heard, job, self._resources.num_samples(job.samples))
            case Evaluate():
                add(self.heard, job, sum(map(self._resources.num_samples, job.parts)))
        return self._inner.submit(job, due, step_flops=step_flops)

    def wait(self, promise: Any) -> Any:
        """Ask the other one."""
        return self._inner.wait(promise)

    def close(self) -> None:
        """Close the other one."""
        self._inner.close()


def evaluation(parts: Parts, result: RunResult) -> Work:
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
                add(work, Evaluate(model, samples, batch_size), amount)
        if "global" in models and len(parts.data.global_test):
            job = Evaluate(models["global"], (GlobalTest(),), batch_size)
            add(work, job, len(parts.data.global_test))
    return work


def seconds(parts: Parts, *works: Work) -> list[float]:
    """Return how long each of some works takes this machine, s, from trials of each kind of job in them."""
    if not parts.executor.learns:
        return [0.0] * len(works)
    kinds: Work = {}
    for work in works:
        for name, kind in work.items():
            if name not in kinds or len(kinds[name].tried) < len(kind.tried):
                kinds[name] = kind
    executor, resources = parts.executor.for_trials(), parts.resources()
    executor.open(resources)
    try:
        rates = _Trials(executor, resources, parts.executor.num_at_once).rates(kinds)
    finally:
        executor.close()
    return [sum(kind.amount * rates[name] for name, kind in work.items()) for work in works]


def seconds_a_fit(parts: Parts, *works: Work) -> float | None:
    """Return how long a fit in some works takes a core of this machine on average, s; None without fits."""
    fits: Work = {name: kind for work in works for name, kind in work.items() if _is_of_fits(name)}
    if not fits or not parts.executor.learns:
        return None
    executor, resources = parts.executor.for_trials(), parts.resources()
    executor.open(resources)
    try:
        rates = _Trials(executor, resources, 1).rates(fits)
    finally:
        executor.close()
    total_s = sum(kind.amount * rates[name] for name, kind in fits.items())
    return total_s / sum(kind.count for kind in fits.values())


class _Trials:
    """Does some jobs, and takes their time."""

    def __init__(self, executor: Executor, resources: Resources, num_at_once: int) -> None:
        self._executor = executor
        self._resources = resources
        self._num_at_once = num_at_once
        self._costs = Costs(resources)

    def rates(self, kinds: Work) -> dict[Hashable, float]:
        """Return how long each kind takes for one of its amount, s; the largest kinds are tried first."""
        began_s, rates = perf_counter(), dict[Hashable, float]()
        for name in sorted(kinds, key=lambda name: -kinds[name].amount):
            known = [rate for other, rate in rates.items() if _alike(other, name)]
            if known and perf_counter() - began_s > MOST_S:
                rates[name] = max(known)
            else:
                rates[name] = self._rate(kinds[name])
        return rates

    def _rate(self, kind: Kind) -> float:
        """Return the time for one of a kind's amount, from ever more jobs and steps until they take long."""
        count, size = len(kind.tried), 1
        longest = max(job.num_steps if isinstance(job, Fit) else 1 for job, _ in kind.tried)
        while True:
            jobs = [self._part(*one, steps=max(1, size // count)) for one in kind.tried[:size]]
            taken_s = self._time_s(jobs)
            if taken_s < MOST_S / 2:
                taken_s = self._time_s(jobs)  # the first of a form are done in several ways
            if taken_s >= TRIAL_S or size >= count * longest:
                break
            size *= GROWTH
        beside = min(self._num_at_once, kind.count) if len(jobs) == 1 else 1
        return taken_s / sum(amount for _, amount in jobs) / beside

    def _time_s(self, jobs: Sequence[tuple[Job, float]]) -> float:
        began_s = perf_counter()
        promises = [
            self._executor.submit(
                job,
                (0, number),
                step_flops=amount / job.num_steps if isinstance(job, Fit) else None,
            )
            for number, (job, amount) in enumerate(jobs)
        ]
        for promise in promises:
            self._executor.wait(promise)
        return perf_counter() - began_s

    def _part(self, job: Learning, amount: float, *, steps: int) -> tuple[Learning, float]:
        """Return a job with few steps, small batches or few samples, with its amount."""
        if isinstance(job, Fit):
            share = min(1.0, FIRST_FLOPS / (amount / job.num_steps))
            streams = {
                name: replace(stream, batch_size=max(2, int(share * stream.batch_size)))
                for name, stream in job.streams.items()
            }
            job = replace(
                job, num_steps=min(steps, job.num_steps), streams=streams if share < 1 else job.streams
            )
            return job, self._costs.work(job).total.flops
        per_sample = self._costs.work(Predict(job.model, self._samples(job, 1), 1)).total.flops
        count = max(1, int(FIRST_FLOPS / max(per_sample, 1.0)))
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


def _alike(one: Any, other: Any) -> bool:
    """Whether two kinds of jobs have the same unit of their amounts."""
    return _is_of_fits(one) == _is_of_fits(other)


def _is_of_fits(kind: Any) -> bool:
    return bool(kind[0] is Fit)
