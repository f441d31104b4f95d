"""Where virtual time meets real work.

A job is submitted at the instant it starts, with a duration known beforehand, and its result is waited for
only when virtual time reaches its end, or later still where it may be pending
(:mod:`fedsim.engine.pending_fit`); until then every other event may run and every other job may train beside
it. The end is an event of the JOIN class: all that can submit more jobs at that instant has run before it,
and a deadline at that instant comes after it. So the order of events depends on durations alone, never on how
fast the machine is or how many workers there are.

The duration of a job is that at full speed. On a device that slows down (:mod:`fedsim.engine.slowdowns`) its
end is later, and the fault is recorded when the job ends or stands still.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from fractions import Fraction
from functools import partial
from math import inf
from typing import Any, TypeAlias, cast

from fedsim.clock import EventClass, RecordKind, Trace, VirtualTimeLoop, now_ns, running_loop
from fedsim.engine.cost import Costs
from fedsim.engine.executors.base import Executor, Promise
from fedsim.engine.fit_job_cache import FitJobCache
from fedsim.engine.jobs import Fit, Fitted, Job, PastJob
from fedsim.engine.like_fits import LikeFits
from fedsim.engine.pending_fit import PendingFits, can_wait, compute_inputs
from fedsim.engine.requests import JobRequest, TimedJob
from fedsim.engine.slowdowns import Slowdowns
from fedsim.engine.worker_state import Resources
from fedsim.errors import FedsimError, JobError
from fedsim.network.faults import FAULT

JOB_START = RecordKind("job_start", ("client", "dispatch", "job", "flops", "duration_s"))
JOB_END = RecordKind("job_end", ("client", "dispatch", "job", "outcome"))
FIT = Fit.__name__.lower()
"""The name of a fit in these records."""
DONE = "done"
"""The outcome of a job that has come to its end; others were cancelled or have failed."""

Ended: TypeAlias = Callable[[list[Any] | None, Exception | None], object]
"""Called when the jobs of a request have ended, with their results, or with what the first to fail raised."""


def job_values(timed: TimedJob) -> tuple[str, float, float]:
    """Return what the record of a job that starts says of it: name, operations, duration in s.

    Raises:
        ValueError: A duration that is negative or not finite.
    """
    job, effort, duration_s, _ = timed
    if not 0 <= duration_s < inf:
        raise ValueError(f"a job of {duration_s!r} s: a duration is finite and not negative")
    return name_of_job(job), effort.total.flops, duration_s


def name_of_job(job: Job | PastJob) -> str:
    """Return what records call a job."""
    return job.name if isinstance(job, PastJob) else type(job).__name__.lower()


class Engine:
    """Runs jobs for the actors of one run.

    Args:
        executor: Who does the work; opened here, closed by :meth:`close`.
        resources: Samples and architectures.
        trace: Where jobs start and end.
        slowdowns: Devices that slow down; None where none does.
    """

    def __init__(
        self, executor: Executor, resources: Resources, trace: Trace, slowdowns: Slowdowns | None = None
    ) -> None:
        self.executor = executor
        self.resources = resources
        self.costs = Costs(resources)
        self.fit_job_cache = FitJobCache(self.costs)
        self.trace = trace
        self.slowdowns = slowdowns
        self._sequence = 0
        self.num_observed = 0  # jobs; those that are observed side by side count as one
        self.pending_fits = PendingFits()
        self._under_way: dict[int, dict[RunningRequest, None]] = {}  # by client
        self._away: set[int] = set()  # asked for membership only: a set has no order
        self._waiters: ThreadPoolExecutor | None = None
        executor.open(resources)

    def start(
        self, request: JobRequest, ended: Ended, results: Sequence[Any] | None = None
    ) -> RunningRequest:
        """Start the jobs of a request in virtual time.

        The result of a fit may be pending: what the fit raises is raised where its result is first looked at.

        Args:
            request: The request.
            ended: Called when the time of the last job is over, or one has failed.
            results: The results, if the jobs have been done beforehand.

        Raises:
            ValueError: A duration that is negative or not finite.
        """
        return RunningRequest(self, request, ended, results)

    async def run(self, request: JobRequest, results: Sequence[Any] | None = None) -> list[Any]:
        """Do the jobs of a request; return their results when they have ended.

        On a real-time loop durations play no part.

        Args:
            request: The request.
            results: The results, if the jobs have been done beforehand.

        Raises:
            JobError: A job raised; the cause is chained. An error of fedsim's own is raised as it is.
            ValueError: A duration that is negative or not finite.
        """
        loop = running_loop()
        if not isinstance(loop, VirtualTimeLoop):
            return list(await asyncio.gather(*(self._run_really(request, timed) for timed in request.jobs)))
        future: asyncio.Future[list[Any]] = loop.create_future()
        running = self.start(request, partial(_settle, future), results)
        try:
            return await future
        finally:
            running.stop()

    async def observe(self, job: Job) -> Any:
        """Do a job that costs no virtual time and leaves no trace.

        Raises:
            JobError: The job raised; the cause is chained.
        """
        loop = running_loop()
        if not isinstance(loop, VirtualTimeLoop):
            return await self._outcome_in_thread(self.submit(job, 0), job, _nowhere)
        promise = self.submit(job, loop.now_ns)
        number = self.num_observed + 1
        try:
            await self.wait_as_observed()
        except asyncio.CancelledError:
            promise.cancel()
            raise
        self.num_observed = max(self.num_observed, number)
        return self._result(job, promise, _nowhere)

    async def wait_as_observed(self) -> None:
        """Wait as :meth:`observe` does for a job, without a job."""
        loop = _virtual_loop()
        future: asyncio.Future[None] = loop.create_future()
        timer = loop.call_at_ns(loop.now_ns, future.set_result, None, event_class=EventClass.JOIN)
        try:
            await future
        except asyncio.CancelledError:
            timer.cancel()
            raise

    async def observe_all(self, request: JobRequest) -> list[Any]:
        """Do the jobs of a request at no cost, as :meth:`observe`."""
        return list(await asyncio.gather(*(self.observe(timed.job) for timed in request.jobs)))

    def submit_ahead(self, request: JobRequest, ends_ns: Sequence[int]) -> list[Promise]:
        """Hand the jobs of a request to the executor; ``ends_ns`` are the instants at which they end."""
        return [
            self.submit(timed.job, end_ns, timed.effort.total.flops)
            for timed, end_ns in zip(request.jobs, ends_ns, strict=True)
        ]

    def results_ahead(self, request: JobRequest, promises: Sequence[Promise]) -> list[Any]:
        """Return the results of such jobs; those that cannot be pending are waited for.

        Raises:
            JobError: As :meth:`run`.
        """
        pairs = zip(request.jobs, promises, strict=True)
        return [self._result(timed.job, promise, request.place) for timed, promise in pairs]

    def record_start(self, request: JobRequest, timed: TimedJob) -> None:
        """Record that a job of a request starts; a ValueError if its duration is negative or not finite."""
        self.trace.record(JOB_START, request.client, request.dispatch, *job_values(timed))

    def record_end(self, request: JobRequest, job: Job, outcome: str = DONE) -> None:
        """Record that a job of a request ends."""
        self.trace.record(JOB_END, request.client, request.dispatch, name_of_job(job), outcome)

    def pause(self, client: int) -> None:
        """Stop the virtual time of a client's jobs, those that begin from now on too; real work goes on."""
        self._away.add(client)
        for running in self._under_way.get(client, ()):
            running.pause()

    def resume(self, client: int, *, restart: bool) -> None:
        """Let a client's jobs go on, or take their whole time again."""
        self._away.discard(client)
        for running in self._under_way.get(client, ()):
            running.resume(restart=restart)

    def close(self) -> None:
        """Give up what has not finished."""
        self.executor.close()
        if self._waiters is not None:
            self._waiters.shutdown(wait=False, cancel_futures=True)

    def submit(self, job: Job, due_ns: int, flops: float | None = None) -> Promise:
        """Hand a job to the executor; ``due_ns`` is the instant at which it ends."""
        self._sequence += 1
        compute_inputs(job)
        return self.executor.submit(job, (due_ns, self._sequence), step_flops=_step_flops(job, flops))

    def submit_like(self, fits: LikeFits, due_ns: int, flops: float) -> Promise | None:
        """Hand like fits to the executor; None where they are to be submitted one by one."""
        self._sequence += 1
        compute_inputs(fits.fit)
        step_flops = _step_flops(fits.fit, flops)
        return self.executor.submit_like(fits, (due_ns, self._sequence), step_flops=step_flops)

    def _result(self, job: Job, promise: Promise, place: Callable[[], str]) -> Any:
        """Return the result of a job, pending where it may be."""
        if isinstance(job, Fit) and can_wait(job):
            # Without a reference to a running request, which may hold the result: nothing waits for the
            # collector.
            compute = partial(late_outcome, partial(self.executor.wait, promise), job, place)
            return self.pending_fits.fitted(job, compute, promise.cancel)
        return _outcome(partial(self.executor.wait, promise), job, place)

    async def _run_really(self, request: JobRequest, timed: TimedJob) -> Any:
        """Do a job on a real-time loop."""
        self.record_start(request, timed)
        outcome = "cancelled"
        try:
            promise = self.submit(timed.job, 0, timed.effort.total.flops)
            result = await self._outcome_in_thread(promise, timed.job, request.place)
            outcome = DONE
            return result
        except FedsimError:
            outcome = "failed"
            raise
        finally:
            self.record_end(request, timed.job, outcome)

    async def _outcome_in_thread(self, promise: Promise, job: Job, place: Callable[[], str]) -> Any:
        if self._waiters is None:
            # One thread for each job that can be under way. The loop's own would all be taken by jobs, and
            # there would be none left for looking a name up.
            self._waiters = ThreadPoolExecutor(self.executor.num_at_once, "fedsim-waiter")
        wait = partial(_outcome, partial(self.executor.wait, promise), job, place)
        try:
            return await running_loop().run_in_executor(self._waiters, wait)
        finally:
            promise.cancel()


class RunningRequest:
    """The jobs of a request under way in virtual time; made by :meth:`Engine.start`."""

    __slots__ = (
        "_done",
        "_ended",
        "_ends_ns",
        "_engine",
        "_is_slowed",
        "_number",
        "_promises",
        "_request",
        "_results",
        "_since_ns",
        "_slowdowns",
        "_timer",
        "due_ns",
    )

    _timer: asyncio.TimerHandle | None  # of the end of the next job; None while the client is away
    due_ns: int  # when the job at hand ends, as far as is known

    def __init__(
        self, engine: Engine, request: JobRequest, ended: Ended, results: Sequence[Any] | None
    ) -> None:
        self._engine, self._request, self._ended = engine, request, ended
        self._slowdowns = engine.slowdowns
        self._number = 0  # of the next job to end
        self._done: int | Fraction = 0  # work, in ns at full speed, until _since_ns
        self._is_slowed = False  # the next job to end, as has been recorded
        for timed in request.jobs:
            engine.record_start(request, timed)
        now_ns, self._ends_ns = _virtual_loop().now_ns, request.ends_ns()
        self._results: list[Any] = [] if results is None else list(results)
        self._promises = None
        if results is None:  # these instants order the real work alone, so they may be too early
            self._promises = engine.submit_ahead(request, [now_ns + end_ns for end_ns in self._ends_ns])
        engine._under_way.setdefault(request.client, {})[self] = None
        self._go_on()
        if request.client in engine._away:
            self.pause()

    def pause(self) -> None:
        """Stop the time of the jobs; without effect where it stands still."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._count_work()

    def resume(self, *, restart: bool) -> None:
        """Let the jobs go on, or let those that have not ended take their whole time again."""
        if self._timer is None:
            if restart:
                self._done = 0
            self._go_on()

    def count_from(self, since_ns: int) -> None:
        """Let the time of the jobs have begun at an instant that is past."""
        if self._timer is not None:
            self._timer.cancel()
            self._since_ns = since_ns
            self._set_timer(_virtual_loop())

    def stop(self) -> None:
        """Give up the jobs that have not ended; harmless where there is none."""
        jobs, under_way = self._request.jobs, self._engine._under_way
        of_client = under_way.get(self._request.client, {})
        if self not in of_client:
            return
        del of_client[self]
        if not of_client:
            del under_way[self._request.client]
        if self._timer is not None:
            self.pause()
        for number in range(self._number, len(jobs)):
            if self._promises is not None:
                self._promises[number].cancel()
            self._engine.record_end(self._request, jobs[number].job, "cancelled")
        self._promises = None  # of which a pending result holds what it needs

    def _go_on(self) -> None:
        loop = _virtual_loop()
        self._since_ns = loop.now_ns
        self._set_timer(loop)

    def _set_timer(self, loop: VirtualTimeLoop) -> None:
        slowdowns, since_ns, end_ns = self._slowdowns, self._since_ns, self._ends_ns[self._number]
        if slowdowns is None:
            due_ns = since_ns + end_ns - int(self._done)
        else:
            due_ns = slowdowns.end_ns(self._request.client, since_ns, end_ns - self._done)
        self.due_ns = due_ns
        self._timer = loop.call_at_ns(due_ns, self._end, event_class=EventClass.JOIN)

    def _count_work(self) -> None:
        """Count the work that was done since the jobs began or went on."""
        engine, request, since_ns = self._engine, self._request, self._since_ns
        self._since_ns = now_ns()
        done: int | Fraction = self._since_ns - since_ns
        if self._slowdowns is not None:
            done = self._slowdowns.work(request.client, since_ns, self._since_ns)
            if done < self._since_ns - since_ns and not self._is_slowed:
                self._is_slowed = True
                engine.trace.record(FAULT, request.client, request.dispatch, True, "slow")
        self._done += done

    def _end(self) -> None:
        """Take the result of the next job; where it cannot be pending, block until it is there."""
        self._timer = None
        engine, request, number = self._engine, self._request, self._number
        if self._slowdowns is not None:
            self._count_work()
            self._is_slowed = False
        job = request.jobs[number].job
        self._number = number + 1
        try:
            if self._promises is not None:
                self._results.append(engine._result(job, self._promises[number], request.place))
        except Exception as error:
            outcome = "failed" if isinstance(error, FedsimError) else "cancelled"
            engine.record_end(request, job, outcome)
            self.stop()
            self._ended(None, error)
            return
        engine.record_end(request, job)
        if self._number < len(request.jobs):
            self._set_timer(_virtual_loop())
        else:
            self.stop()
            self._ended(self._results, None)


def _virtual_loop() -> VirtualTimeLoop:
    return cast(VirtualTimeLoop, running_loop())


def _settle(future: asyncio.Future[list[Any]], results: list[Any] | None, error: Exception | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(cast("list[Any]", results))


def _nowhere() -> str:
    """Say nothing of whose job it is."""
    return ""


def _step_flops(job: Job, flops: float | None) -> float | None:
    """Return the operations of one step of a job, given those of all."""
    return flops / job.num_steps if flops and isinstance(job, Fit) and job.num_steps else flops


def _outcome(wait: Callable[[], Any], job: Job, place: Callable[[], str]) -> Any:
    """Return what a call gives, the result of a job; what it raises becomes an error of fedsim's own."""
    try:
        return wait()
    except CancelledError:
        raise
    except Exception as error:
        if isinstance(error, FedsimError) and not isinstance(error, JobError):
            raise
        reason = str(error) if isinstance(error, JobError) else f"{type(error).__name__}: {error}"
        raise JobError(f"a {name_of_job(job)} job failed{place()}: {reason}") from error


def late_outcome(wait: Callable[[], Fitted], job: Fit, place: Callable[[], str]) -> Fitted:
    """Return what a call gives, the result of a fit that is looked at after its end.

    Raises:
        JobError: It failed, or the run has ended.
    """
    try:
        fitted: Fitted = _outcome(wait, job, place)
        return fitted
    except CancelledError:
        raise JobError(
            f"a fit{place()} was never computed, because nobody had looked at its result when the run ended: "
            "look at one of its arrays before"
        ) from None
