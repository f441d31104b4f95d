"""Who runs jobs for real. Executors that learn give the same results; they differ in speed and in place.

A job is submitted at the virtual instant at which it starts, with the instant at which it is due, and returns
a :class:`Promise`, such as a standard :class:`concurrent.futures.Future`. Its result comes from
:meth:`Executor.wait` alone, since an executor may do a job no sooner than that. Jobs start earliest-due
first. Cancelling a promise that has not started costs nothing; one that runs is finished and thrown away.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Protocol

from pydantic import SerializeAsAny

from fedsim.config import Config
from fedsim.engine.job_times import JobTimes
from fedsim.engine.jobs import Job
from fedsim.engine.like_fits import LikeFits
from fedsim.engine.worker_state import Resources
from fedsim.params import Work
from fedsim.plugins import ConfigClass, Plugin
from fedsim.ranges import Workers

Batching = Literal["auto", "off"]
"""Where jobs that are alike are done together: wherever bits are certain to be equal, or nowhere."""

Due = tuple[int, int]
"""When a result is wanted: (virtual ns, sequence)."""


class Promise(Protocol):
    """A result to come; the executor that gave it knows how to get it."""

    def cancel(self) -> bool:
        """Give it up; return whether that was possible."""


class ExecutorConfig(Config):
    """What every executor is told."""

    workers: Workers = 1
    """Jobs that run at once; results do not depend on it."""
    batching: Batching = "auto"
    """Whether jobs that are alike may be done together; results do not depend on it."""
    params: SerializeAsAny[Config] = Config()
    """Parameters of the executor's own, of its class ``Params``."""


class Executor(Plugin[ExecutorConfig], ABC):
    """Runs jobs."""

    Params: ClassVar[ConfigClass] = Config
    """What ``engine.params`` may say."""
    learns: ClassVar[bool] = True
    """Whether models really learn, so that evaluating them means something."""
    is_elsewhere: ClassVar[bool] = False
    """Whether jobs are done in other processes, which build the samples themselves."""
    extra: ClassVar[str] = ""
    """The extra of fedsim that it needs, called like its package; empty: none."""

    @classmethod
    def params(cls) -> ConfigClass:
        """Return the class of what ``engine.params`` may say; other settings are those of every executor."""
        return cls.Params

    job_times: JobTimes | None = None
    """Notes when jobs are done, if somebody wants to know."""

    @property
    def num_at_once(self) -> int:
        """How many jobs can be under way."""
        return self.config.workers

    def for_trials(self) -> Executor:
        """Return who does jobs for a forecast, in this process."""
        return self

    @property
    def facts(self) -> Mapping[str, Any]:
        """Where jobs were done, for ``run.json``, beside what every executor says there."""
        return {}

    @property
    def jobs_done(self) -> Mapping[str, Mapping[str, int]]:
        """How many jobs of each kind were done in which way, for ``run.json``."""
        return {}

    @abstractmethod
    def open(self, resources: Resources) -> None:
        """Get ready; called once, before the first job."""

    @abstractmethod
    def submit(self, job: Job, due: Due, *, step_flops: float | None = None) -> Promise:
        """Take a job; never waits for one. After :meth:`close` the promise is cancelled.

        Args:
            job: The job; nothing in its inputs is pending.
            due: When its result is wanted.
            step_flops: Operations of one of its batches, where known: a hint that changes no result.
        """

    def submit_like(self, fits: LikeFits, due: Due, *, step_flops: float | None = None) -> Promise | None:
        """Take like fits, whose result is one :class:`fedsim.engine.like_fits.LikeFitted`.

        None where they are to be submitted one by one, which is what an executor wants by default.
        """
        return None

    @abstractmethod
    def wait(self, promise: Any) -> Any:
        """Block until a result is there and return it, or raise what the job raised.

        Called by the loop's thread, at the instant at which the result is due or later. All jobs that have
        been submitted by then, and are like it, may be done together with it.
        """

    def spread(self, work: Work, blocks: Sequence[int]) -> None:
        """Do work on blocks, perhaps in several threads; return when it is done."""
        work(blocks)

    @abstractmethod
    def close(self) -> None:
        """Give up what has not finished and free everything; may be called twice."""
