"""Threads of this process, each with one torch thread pinned, fed earliest-due first.

Parallelism comes from jobs, never from inside an operation: with one intra-op thread in *every* worker a
result is the same bit for bit whatever the number of workers. A single worker needs no thread: the loop does
each job itself when its result is due, which spares two threads from taking turns with the interpreter.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from fedsim.engine.executors.base import Due, Executor
from fedsim.engine.executors.in_process import Crew
from fedsim.engine.executors.inline import Alone
from fedsim.engine.executors.thread_pool import Pool
from fedsim.engine.jobs import Job
from fedsim.engine.worker_state import Resources


class Threads(Executor):
    """A pool of threads, or the loop's own."""

    def open(self, resources: Resources) -> None:
        """Start the threads, if there are any."""
        workers = self.config.workers
        self._crew: Crew = Alone(resources) if workers == 1 else Pool(resources, workers)

    def submit(self, job: Job, due: Due) -> Future[Any]:
        """Take a job."""
        return self._crew.submit(job, due)

    def wait(self, promise: Future[Any]) -> Any:
        """Return the result when it is there; a single worker does the job now."""
        return self._crew.wait(promise)

    def close(self) -> None:
        """Drop what has not started, stop running jobs at their next step, and wait for the threads."""
        self._crew.close()


PLUGIN = Threads
