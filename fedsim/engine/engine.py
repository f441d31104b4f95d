"""Where virtual time meets real work.

A job is submitted at the instant it starts, with a duration known beforehand, and its result is waited for
only when virtual time reaches its end; until then every other event may run and every other job may train
beside it. The wait is an event of the JOIN class: all that can submit more jobs at that instant has run
before it, and a deadline at that instant comes after it. So the order of events depends on durations alone,
never on how fast the machine is or how many workers there are.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from math import inf
from typing import Any

from fedsim.clock import EventClass, RecordKind, Trace, VirtualTimeLoop
from fedsim.engine.cost import Costs
from fedsim.engine.executors.base import Executor
from fedsim.engine.jobs import Job
from fedsim.engine.worker import Resources
from fedsim.errors import FedsimError, JobError

JOB_START = RecordKind("job_start", ("client", "dispatch", "job", "flops", "duration_s"))
JOB_END = RecordKind("job_end", ("client", "dispatch", "job", "outcome"))


class Engine:
    """Runs jobs for the actors of one run.

    Args:
        executor: Who does the work; opened here, closed by :meth:`close`.
        resources: Samples and architectures.
        trace: Where jobs start and end.
    """

    def __init__(self, executor: Executor, resources: Resources, trace: Trace) -> None:
        self.executor = executor
        self.resources = resources
        self.costs = Costs(resources)
        self._trace = trace
        self._sequence = 0
        executor.open(resources)

    async def run(self, job: Job, *, client: int, dispatch: int, flops: float, duration_s: float) -> Any:
        """Do a job that takes ``duration_s`` of virtual time; return its result when that has passed.

        On a real-time loop the result is awaited, and the duration plays no part.

        Raises:
            JobError: The job raised; the cause is chained. An error of fedsim's own comes as it is.
            ValueError: A duration that is negative or not finite.
        """
        if not 0 <= duration_s < inf:
            raise ValueError(f"a job of {duration_s!r} s: a duration is finite and not negative")
        name = type(job).__name__.lower()
        self._trace.record(JOB_START, client, dispatch, name, flops, duration_s)
        outcome = "cancelled"
        try:
            result = await self._result(job, duration_s)
            outcome = "done"
            return result
        except FedsimError:
            outcome = "failed"
            raise
        finally:
            self._trace.record(JOB_END, client, dispatch, name, outcome)

    async def observe(self, job: Job) -> Any:
        """Do a job that costs no virtual time and leaves no trace.

        Raises:
            JobError: The job raised; the cause is chained.
        """
        return await self._result(job, 0.0)

    def close(self) -> None:
        """Give up what has not finished."""
        self.executor.close()

    async def _result(self, job: Job, duration_s: float) -> Any:
        loop = asyncio.get_running_loop()
        self._sequence += 1
        if not isinstance(loop, VirtualTimeLoop):
            real = self.executor.submit(job, (0, self._sequence))
            try:
                return await loop.run_in_executor(None, self.executor.wait, real)
            except FedsimError:
                raise
            except Exception as error:
                raise _failed(job, error) from error
            finally:
                real.cancel()
        due_ns = loop.now_ns + round(duration_s * 1e9)
        real = self.executor.submit(job, (due_ns, self._sequence))
        virtual: asyncio.Future[Any] = loop.create_future()
        timer = loop.call_at_ns(due_ns, self._join, job, real, virtual, event_class=EventClass.JOIN)
        try:
            return await virtual
        finally:
            # Without effect once the result is there; before that, whoever waited has been cancelled.
            timer.cancel()
            real.cancel()

    def _join(self, job: Job, real: Future[Any], virtual: asyncio.Future[Any]) -> None:
        """Block until the result is there; nothing else blocks the thread of the loop."""
        try:
            result = self.executor.wait(real)
        except FedsimError as error:
            virtual.set_exception(error)
        except Exception as error:
            failure = _failed(job, error)
            failure.__cause__ = error
            virtual.set_exception(failure)
        else:
            virtual.set_result(result)


def _failed(job: Job, error: Exception) -> JobError:
    return JobError(f"a {type(job).__name__.lower()} job failed: {type(error).__name__}: {error}")
