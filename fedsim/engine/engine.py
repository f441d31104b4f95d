"""Where virtual time meets real work.

A job is submitted at the instant it starts, with a duration known beforehand, and its result is waited for
only when virtual time reaches its end, or later still where it may be pending
(:mod:`fedsim.engine.pending_fit`); until then every other event may run and every other job may train beside
it. The end is an event of the JOIN class: all that can submit more jobs at that instant has run before it,
and a deadline at that instant comes after it. So the order of events depends on durations alone, never on how
fast the machine is or how many workers there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import CancelledError, ThreadPoolExecutor
from functools import partial
from math import inf
from typing import Any, TypeAlias, cast

from fedsim.clock import EventClass, RecordKind, Trace, VirtualTimeLoop, running_loop
from fedsim.engine.cost import Costs
from fedsim.engine.executors.base import Executor, Promise
from fedsim.engine.jobs import Fit, Job
from fedsim.engine.pending_fit import PendingFits, can_wait, compute_inputs
from fedsim.engine.usual_fits import UsualFits
from fedsim.engine.worker_state import Resources
from fedsim.errors import FedsimError, JobError

JOB_START = RecordKind("job_start", ("client", "dispatch", "job", "flops", "duration_s"))
JOB_END = RecordKind("job_end", ("client", "dispatch", "job", "outcome"))


Ended: TypeAlias = Callable[[Any, Exception | None], object]
"""Called with a job's result, or with what it raised."""


def _nowhere() -> str:
    """Say nothing of whose job it is."""
    return ""


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
        self.usual_fits = UsualFits(self.costs)
        self._trace = trace
        self._sequence = 0
        self._pending = PendingFits()
        self._at_work: AtWork = {}
        self._away: set[int] = set()  # asked for membership only: a set has no order
        self._waiters: ThreadPoolExecutor | None = None
        executor.open(resources)

    async def run(
        self,
        job: Job,
        *,
        client: int,
        dispatch: int,
        flops: float,
        duration_s: float,
        after_s: float = 0.0,
        place: Callable[[], str] = _nowhere,
    ) -> Any:
        """Do a job that takes ``duration_s`` of virtual time; return its result when that has passed.

        Where its device is at other work for the next ``after_s``, it is queued behind that: its turn comes
        so much later, though the real work may be done at once.

        On a real-time loop the result is awaited, and the duration plays no part. In virtual time that of a
        fit may be pending: then what the fit raises comes when its result is first looked at.

        Args:
            job: The job.
            client: Address of the party whose device it is.
            dispatch: Number of the dispatch to it.
            flops: What the job costs, for the trace.
            duration_s: How long it takes.
            after_s: How long the device is at other work before.
            place: Gives the words for whose job it is, for an error.

        Raises:
            JobError: The job raised; the cause is chained. An error of fedsim's own comes as it is.
            ValueError: A duration that is negative or not finite.
        """
        name = self._record_start(job, client, dispatch, flops, duration_s)
        outcome = "cancelled"
        try:
            result = await self._result(job, after_s + duration_s, client, place, flops)
            outcome = "done"
            return result
        except FedsimError:
            outcome = "failed"
            raise
        finally:
            self._trace.record(JOB_END, client, dispatch, name, outcome)

    def begin(
        self,
        job: Fit,
        *,
        client: int,
        dispatch: int,
        flops: float,
        duration_s: float,
        place: Callable[[], str],
        ended: Ended,
    ) -> Callable[[], None]:
        """Do a fit in virtual time and call a function at its end: :meth:`run` without a task that waits.

        Args:
            job: The fit.
            client: Address of the party whose device it is.
            dispatch: Number of the dispatch to it.
            flops: What the job costs, for the trace.
            duration_s: How long it takes.
            place: Gives the words for whose job it is, for an error.
            ended: Called at its end with its result, or with what it raised.

        Returns:
            A function that stops it before its end, where a task would be cancelled.

        Raises:
            ValueError: A duration that is negative or not finite.
        """
        name = self._record_start(job, client, dispatch, flops, duration_s)

        def tell(result: Any, error: Exception | None) -> None:
            running.leave()
            outcome = "done" if error is None else "failed" if isinstance(error, FedsimError) else "cancelled"
            self._trace.record(JOB_END, client, dispatch, name, outcome)
            ended(result, error)

        def stop() -> None:
            running.leave()
            self._trace.record(JOB_END, client, dispatch, name, "cancelled")

        loop = cast(VirtualTimeLoop, running_loop())
        running = self._start(loop, job, duration_s, client, place, flops, tell)
        return stop

    def _record_start(self, job: Job, client: int, dispatch: int, flops: float, duration_s: float) -> str:
        """Record that a job starts; return what the trace calls it."""
        if not 0 <= duration_s < inf:
            raise ValueError(f"a job of {duration_s!r} s: a duration is finite and not negative")
        name = type(job).__name__.lower()
        self._trace.record(JOB_START, client, dispatch, name, flops, duration_s)
        return name

    async def observe(self, job: Job) -> Any:
        """Do a job that costs no virtual time and leaves no trace.

        Raises:
            JobError: The job raised; the cause is chained.
        """
        return await self._result(job, 0.0)

    def pause(self, client: int) -> None:
        """Stop the virtual time of a client's jobs, those that begin from now on too; real work goes on."""
        self._away.add(client)
        for running in self._at_work.get(client, {}).values():
            running.pause()

    def resume(self, client: int, *, restart: bool) -> None:
        """Let a client's jobs go on, or take their whole time again."""
        self._away.discard(client)
        for running in self._at_work.get(client, {}).values():
            running.resume(restart=restart)

    def close(self) -> None:
        """Give up what has not finished."""
        self.executor.close()
        if self._waiters is not None:
            self._waiters.shutdown(wait=False, cancel_futures=True)

    async def _result(
        self,
        job: Job,
        duration_s: float,
        client: int | None = None,
        place: Callable[[], str] = _nowhere,
        flops: float | None = None,
    ) -> Any:
        loop = running_loop()
        if isinstance(loop, VirtualTimeLoop):
            future: asyncio.Future[Any] = loop.create_future()
            running = self._start(loop, job, duration_s, client, place, flops, partial(_settle, future))
            try:
                return await future
            finally:
                running.leave()
        real = self._submit(job, 0, flops)
        try:
            return await loop.run_in_executor(self._threads(), _outcome, self.executor, job, real, place)
        finally:
            real.cancel()

    def _submit(self, job: Job, due_ns: int, flops: float | None) -> Promise:
        """Hand a job to the executor."""
        self._sequence += 1
        compute_inputs(job)
        step_flops = flops / job.num_steps if flops and isinstance(job, Fit) and job.num_steps else flops
        return self.executor.submit(job, (due_ns, self._sequence), step_flops=step_flops)

    def _start(
        self,
        loop: VirtualTimeLoop,
        job: Job,
        duration_s: float,
        client: int | None,
        place: Callable[[], str],
        flops: float | None,
        ended: Ended,
    ) -> _Running:
        """Start a job in virtual time; whoever does leaves it when it has ended or is given up."""
        duration_ns = round(duration_s * 1e9)
        real = self._submit(job, loop.now_ns + duration_ns, flops)
        running = _Running(loop, self.executor, job, real, duration_ns, place, self._pending, ended)
        if client is not None:
            running.enter(self._at_work, client, self._sequence)
            if client in self._away:
                running.pause()
        return running

    def _threads(self) -> ThreadPoolExecutor:
        """Return the threads that wait on a real loop: one for each job that can be under way.

        The loop's own would all be taken by jobs, and there would be none left for looking a name up.
        """
        if self._waiters is None:
            self._waiters = ThreadPoolExecutor(self.executor.num_at_once, "fedsim-waiter")
        return self._waiters


class _Running:
    """A job under way in virtual time, and the timer of its end."""

    def __init__(
        self,
        loop: VirtualTimeLoop,
        executor: Executor,
        job: Job,
        real: Promise,
        duration_ns: int,
        place: Callable[[], str],
        pending: PendingFits,
        ended: Ended,
    ) -> None:
        self._loop = loop
        self._executor = executor
        self._job = job
        self._real = real
        self._place = place
        self._pending = pending
        self._ended = ended
        self._has_ended = False
        self._place_at_work: tuple[AtWork, int, int] | None = None
        self._duration_ns = self._remaining_ns = duration_ns
        self._go_on()

    def enter(self, at_work: AtWork, client: int, number: int) -> None:
        """Enter it into the jobs of its client, from which it takes itself out."""
        at_work.setdefault(client, {})[number] = self
        self._place_at_work = at_work, client, number

    def _go_on(self) -> None:
        self._due_ns = self._loop.now_ns + self._remaining_ns
        self._timer: asyncio.TimerHandle | None = self._loop.call_at_ns(
            self._due_ns, self._end, event_class=EventClass.JOIN
        )

    def pause(self) -> None:
        """Hold it; without effect on one that is held."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._remaining_ns = self._due_ns - self._loop.now_ns

    def resume(self, *, restart: bool) -> None:
        """Go on with what remains, or with all of it."""
        if self._timer is None and not self._has_ended:
            self._remaining_ns = self._duration_ns if restart else self._remaining_ns
            self._go_on()

    def leave(self) -> None:
        """Forget it; give it up, unless it has ended."""
        if self._timer is not None:
            self._timer.cancel()
        if not self._has_ended:
            self._real.cancel()
        del self._ended  # which may hold this object: nothing waits for the collector
        if self._place_at_work is not None:
            at_work, client, number = self._place_at_work
            mine = at_work[client]
            del mine[number]
            if not mine:
                del at_work[client]

    def _end(self) -> None:
        """Give the result; where it cannot be pending, block until it is there, as nothing else does."""
        self._timer = None
        self._has_ended = True
        job, ended = self._job, self._ended
        try:
            if isinstance(job, Fit) and can_wait(job):
                # Without a reference to this object, which holds the result: nothing waits for the collector.
                compute = partial(_late_outcome, self._executor, job, self._real, self._place)
                result: Any = self._pending.fitted(job, compute, self._real.cancel)
            else:
                result = _outcome(self._executor, job, self._real, self._place)
        except Exception as error:
            ended(None, error)
        else:
            ended(result, None)


AtWork = dict[int, dict[int, _Running]]
"""The jobs under way, by client and by number."""


def _settle(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    """Give a job's result to whoever awaits it."""
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


def _outcome(executor: Executor, job: Job, real: Promise, place: Callable[[], str]) -> Any:
    """Wait for the result of a job; what it raises is an error of fedsim's own."""
    try:
        return executor.wait(real)
    except CancelledError:
        raise
    except Exception as error:
        if isinstance(error, FedsimError) and not isinstance(error, JobError):
            raise
        said = str(error) if isinstance(error, JobError) else f"{type(error).__name__}: {error}"
        raise JobError(f"a {type(job).__name__.lower()} job failed{place()}: {said}") from error


def _late_outcome(executor: Executor, job: Job, real: Promise, place: Callable[[], str]) -> Any:
    """Wait for the result of a job that is looked at after its end."""
    try:
        return _outcome(executor, job, real, place)
    except CancelledError:
        raise JobError(
            f"a fit{place()} was never computed, because nobody had looked at its result when the run ended: "
            "look at one of its arrays before"
        ) from None
