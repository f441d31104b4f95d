"""No learning, for studies of systems alone: time and bytes are real, models are not.

A fit returns its start parameters and leaves optimisers as they were, a prediction is uniform over the
classes, and nothing is evaluated. An algorithm's own arithmetic (a call) is really done, since what follows
may depend on it.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from fedsim.engine.execute import one_torch_thread, run, unfitted
from fedsim.engine.executors.base import Due, Executor, Promise
from fedsim.engine.jobs import Call, Evaluate, Fit, Job, Predict, Score
from fedsim.engine.like_fits import LikeFits, LikeFitted
from fedsim.engine.worker_state import Resources, Worker
from fedsim.params import Array, freeze


class Kept:
    """A promise of what takes no work."""

    __slots__ = ("job",)

    def __init__(self, job: Job | LikeFits) -> None:
        self.job = job

    def cancel(self) -> bool:
        """Nothing has begun."""
        return True


class Null(Executor):
    """Returns placeholder results immediately."""

    learns = False

    def open(self, resources: Resources) -> None:
        """Remember what shapes there are."""
        self._resources = resources
        self._worker = Worker(resources, threading.Event())
        self._uniform: dict[tuple[int, ...], Array] = {}

    def submit(self, job: Job, due: Due, *, step_flops: float | None = None) -> Promise:
        """Keep the job until its result is due."""
        return Kept(job)

    def submit_like(self, fits: LikeFits, due: Due, *, step_flops: float | None = None) -> Promise | None:
        """Keep the fits until their results are due; a subclass may have a result for each of them."""
        return Kept(fits) if type(self) is Null else None

    def wait(self, promise: Any) -> Any:
        """Return a result without doing the job."""
        job = promise.job
        if isinstance(job, LikeFits):
            return LikeFitted.of(job, [self._result(job.fit)] * len(job))
        return self._result(job)

    def close(self) -> None:
        """Nothing to free."""

    def _result(self, job: Job) -> Any:
        match job:
            case Fit():
                return unfitted(job)
            case Predict(model, samples):
                architecture = self._resources.architectures[model.architecture]
                shape = self._resources.num_samples(samples), *architecture.output_shape
                if shape not in self._uniform:
                    self._uniform[shape] = freeze({"logits": np.zeros(shape, np.float32)})["logits"]
                return self._uniform[shape]
            case Evaluate(parts=parts):
                return [Score(0, 0, 0.0) for _ in parts]
            case Call():
                with one_torch_thread():
                    return run(job, self._worker)


PLUGIN = Null
