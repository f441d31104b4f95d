"""Running jobs together that are alike; each result is, bit for bit, that of the job run by itself."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from contextlib import suppress
from typing import Any, cast

from fedsim.engine import batched_fit
from fedsim.engine.execute import own_generators_only, run
from fedsim.engine.jobs import Fit, Job
from fedsim.engine.worker_state import Resources, Worker


def batch_key(job: Job, resources: Resources) -> Hashable | None:
    """Return what jobs that can be run together have in common; None for one that is run by itself."""
    return batched_fit.batch_key(job, resources) if isinstance(job, Fit) else None


def run_together(jobs: Sequence[Job], worker: Worker) -> list[Any]:
    """Run jobs of one :func:`batch_key`; return each one's result, or the exception that it raised.

    Where jobs fail together each of them is run by itself, so that only those fail whose fault it is.
    """
    if len(jobs) > 1:
        with suppress(Exception), own_generators_only(worker.resources.device):
            return list(batched_fit.fit_together(cast(Sequence[Fit], jobs), worker))
    return [_run(job, worker) for job in jobs]


def _run(job: Job, worker: Worker) -> Any:
    try:
        return run(job, worker)
    except BaseException as error:
        return error
