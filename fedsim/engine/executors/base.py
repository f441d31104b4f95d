"""Who runs jobs for real. Executors that learn give the same results; they differ in speed and in place.

A job is submitted at the virtual instant at which it starts, with the instant at which it is due, and returns
a standard :class:`concurrent.futures.Future`. Jobs start earliest-due first. Cancelling a future that has not
started costs nothing; one that runs is finished and thrown away.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from concurrent.futures import Future
from typing import Annotated, Any, ClassVar

from pydantic import Field

from fedsim.config import Config
from fedsim.engine.jobs import Job
from fedsim.engine.worker import Resources
from fedsim.plugins import Plugin

Due = tuple[int, int]
"""When a result is wanted: (virtual ns, sequence)."""


class ExecutorConfig(Config):
    """What every executor is told."""

    workers: Annotated[int, Field(ge=1)] = 1
    """Jobs that run at once; results do not depend on it."""


class Executor(Plugin[ExecutorConfig], ABC):
    """Runs jobs."""

    Config = ExecutorConfig
    learns: ClassVar[bool] = True
    """Whether models really learn, so that evaluating them means something."""

    @abstractmethod
    def open(self, resources: Resources) -> None:
        """Get ready; called once, before the first job."""

    @abstractmethod
    def submit(self, job: Job, due: Due) -> Future[Any]:
        """Take a job; never waits for one. After :meth:`close` the future is cancelled."""

    def wait(self, future: Future[Any]) -> Any:
        """Block until a result is there and return it, or raise what the job raised.

        Called by the loop's thread at the instant at which the result is due; an executor that collects jobs
        into batches decides here, at a point in virtual time, what to run together.
        """
        return future.result()

    @abstractmethod
    def close(self) -> None:
        """Give up what has not finished and free everything; may be called twice."""
