"""Running jobs together that are alike; each result is, bit for bit, that of the job run by itself."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from fedsim.engine.batched import evaluation, fit
from fedsim.engine.batched.kinds import ALONE, FAILED, Ways
from fedsim.engine.execute import own_generators_only, run
from fedsim.engine.jobs import Evaluate, Fit, Fitted, Job, Predict
from fedsim.engine.like_fits import LikeFits, LikeFitted
from fedsim.engine.worker_state import Worker
from fedsim.errors import InvariantError
from fedsim.params import unwarned


def run_together(jobs: Sequence[Any], worker: Worker) -> tuple[list[Any], Ways]:
    """Run jobs of one batch key; return the result or exception of each, and how many were run in which way.

    Some may be like fits (:class:`fedsim.engine.like_fits.LikeFits`), each with one result for all of them.

    Where jobs fail together each of them is run by itself, so that only those fail whose fault it is.
    """
    ways = Ways()
    num_jobs = sum(len(job) if isinstance(job, LikeFits) else 1 for job in jobs)
    can_be_together = num_jobs > 1 or (isinstance(jobs[0], Evaluate) and len(jobs[0].parts) > 1)
    if can_be_together:
        with suppress(Exception), own_generators_only(worker.resources.device), unwarned():
            results = _together(jobs, worker, ways)
            return _verified(jobs, results, worker) if worker.resources.verify else results, ways
    by_themselves = {FAILED if can_be_together else ALONE: num_jobs}
    return [_run(job, worker) for job in jobs], Ways(by_themselves)


def _together(jobs: Sequence[Any], worker: Worker, ways: Ways) -> list[Any]:
    match jobs[0]:
        case Fit() | LikeFits():
            return list(fit.fit_together(jobs, worker, ways))
        case Predict():
            return list(evaluation.predict_together(jobs, worker, ways))
        case _:
            return list(evaluation.evaluate_together(jobs, worker, ways))


def _verified(jobs: Sequence[Any], results: Sequence[Any], worker: Worker) -> list[Any]:
    """Do each job again by itself and with other jobs; put an error in the place of a result that differs."""
    others = dict[int, Any]()
    for numbers in (range(0, len(jobs), 2), range(1, len(jobs), 2)):  # the even places, then the odd ones
        if len(numbers) > 1:
            done = _together([jobs[number] for number in numbers], worker, Ways())
            others |= zip(numbers, done, strict=True)
    checked = []
    for number, (job, result) in enumerate(zip(jobs, results, strict=True)):
        again = {"alone": run(job, worker)} | ({"with others": others[number]} if number in others else {})
        differing = [how for how, its in again.items() if _bits(its) != _bits(result)]
        checked.append(_difference(job, differing) if differing else result)
    return checked


def _difference(job: Job, differing: Sequence[str]) -> InvariantError:
    return InvariantError(
        f"a {type(job).__name__.lower()} that was computed together with those of other clients has other "
        f"bits when it is computed again {' and '.join(differing)}: set engine.batching = 'off', and "
        "report this"
    )


def _bits(result: Any) -> Any:
    return fit.bits_of(result) if isinstance(result, Fitted) else evaluation.bits_of(result)


def _run(job: Job | LikeFits, worker: Worker) -> Any:
    if isinstance(job, LikeFits):
        return LikeFitted.of(job, [_run(job[number], worker) for number in range(len(job))])
    try:
        return run(job, worker)
    except KeyboardInterrupt:
        raise  # at once, whatever is left to do
    except BaseException as error:
        return error
