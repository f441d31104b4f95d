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
from typing import Any, cast

from fedsim.clock import EventClass, RecordKind, Trace, VirtualTimeLoop, now_ns, running_loop
from fedsim.engine.cost import Costs
from fedsim.engine.executors.base import Executor, Promise
from fedsim.engine.jobs import Fit, Fitted, Job
from fedsim.engine.pending_fit import PendingFits, can_wait, compute_inputs
from fedsim.engine.usual_fits import UsualFits
from fedsim.engine.worker_state import Resources
from fedsim.errors import FedsimError, JobError
from fedsim.params import Model

JOB_START = RecordKind("job_start", ("client", "dispatch", "job", "flops", "duration_s"))
JOB_END = RecordKind("job_end", ("client", "dispatch", "job", "outcome"))


def called(kind: type[Job]) -> str:
    """Return what the trace calls jobs of a kind."""
    return kind.__name__.lower()


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
        running: RunningFit,
        fit: Fit,
        *,
        client: int,
        dispatch: int,
        flops: float,
        duration_s: float,
        place: Callable[[], str],
    ) -> None:
        """Do a fit in virtual time and tell an object of its end: :meth:`run` without a task that waits.

        Args:
            running: What is told; it may be at one fit at a time.
            fit: The fit.
            client: Address of the party whose device it is.
            dispatch: Number of the dispatch to it.
            flops: What the job costs, for the trace.
            duration_s: How long it takes.
            place: Gives the words for whose job it is, for an error.

        Raises:
            ValueError: A duration that is negative or not finite.
        """
        running._name = self._record_start(fit, client, dispatch, flops, duration_s)
        running._dispatch = dispatch
        running._start(self, cast(VirtualTimeLoop, running_loop()), fit, duration_s, client, place, flops)

    def begun(self, fit: Fit, *, due_ns: int, flops: float, place: Callable[[], str]) -> Fitted:
        """Submit a fit; the caller records its start and end. Return its pending result.

        Args:
            fit: One that :func:`fedsim.engine.pending_fit.can_wait`.
            due_ns: When it ends.
            flops: What it costs.
            place: Gives the words for whose job it is, for an error.
        """
        return self._late(fit, self._submit(fit, due_ns, flops), place)

    def form_of_fitted(self, model: Model) -> Model:
        """Return a model of the form that fits from these start values give; its arrays have no values."""
        return self._pending.form_of_fitted(model)

    def _late(self, fit: Fit, promise: Promise, place: Callable[[], str]) -> Fitted:
        """Return the result of a fit, to be computed when it is looked at."""
        compute = partial(_late_outcome, self.executor, fit, promise, place)
        return self._pending.fitted(fit, compute, promise.cancel)

    def _record_start(self, job: Job, client: int, dispatch: int, flops: float, duration_s: float) -> str:
        """Record that a job starts; return what the trace calls it."""
        if not 0 <= duration_s < inf:
            raise ValueError(f"a job of {duration_s!r} s: a duration is finite and not negative")
        name = called(type(job))
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
            running = _Awaited(loop.create_future())
            running._start(self, loop, job, duration_s, client, place, flops)
            try:
                return await running.future
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

    def _threads(self) -> ThreadPoolExecutor:
        """Return the threads that wait on a real loop: one for each job that can be under way.

        The loop's own would all be taken by jobs, and there would be none left for looking a name up.
        """
        if self._waiters is None:
            self._waiters = ThreadPoolExecutor(self.executor.num_at_once, "fedsim-waiter")
        return self._waiters


class _Running:
    """A job under way in virtual time, and the timer of its end."""

    __slots__ = (
        "_client",
        "_due_ns",
        "_duration_ns",
        "_engine",
        "_has_ended",
        "_job",
        "_number",
        "_place",
        "_promise",
        "_remaining_ns",
        "_timer",
    )

    _timer: asyncio.TimerHandle | None
    _due_ns: int

    def _start(
        self,
        engine: Engine,
        loop: VirtualTimeLoop,
        job: Job,
        duration_s: float,
        client: int | None,
        place: Callable[[], str],
        flops: float | None,
    ) -> None:
        """Start the job; whoever does calls :meth:`leave` when it has ended or is given up."""
        duration_ns = round(duration_s * 1e9)
        self._engine = engine
        self._job = job
        self._place = place
        self._has_ended = False
        self._duration_ns = self._remaining_ns = duration_ns
        self._client = client
        self._promise = engine._submit(job, loop.now_ns + duration_ns, flops)
        self._number = engine._sequence
        self._go_on(loop)
        if client is not None:
            engine._at_work.setdefault(client, {})[self._number] = self
            if client in engine._away:
                self.pause()

    def _go_on(self, loop: VirtualTimeLoop) -> None:
        self._due_ns = due_ns = loop.now_ns + self._remaining_ns
        self._timer = loop.call_at_ns(due_ns, self._end, event_class=EventClass.JOIN)

    def pause(self) -> None:
        """Hold it; without effect on one that is held."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._remaining_ns = self._due_ns - now_ns()

    def resume(self, *, restart: bool) -> None:
        """Go on with what remains, or with all of it."""
        if self._timer is None and not self._has_ended:
            self._remaining_ns = self._duration_ns if restart else self._remaining_ns
            self._go_on(cast(VirtualTimeLoop, running_loop()))

    def leave(self) -> None:
        """Forget the job; give it up, unless it has ended."""
        if self._timer is not None:
            self._timer.cancel()
        if not self._has_ended:
            self._promise.cancel()
        del self._job, self._promise, self._place  # of which a pending result holds what it needs
        if self._client is not None:
            at_work = self._engine._at_work
            mine = at_work[self._client]
            del mine[self._number]
            if not mine:
                del at_work[self._client]

    def _end(self) -> None:
        """Give the result; where it cannot be pending, block until it is there, as nothing else does."""
        self._timer = None
        self._has_ended = True
        job, promise, place, engine = self._job, self._promise, self._place, self._engine
        try:
            if isinstance(job, Fit) and can_wait(job):
                # Without a reference to this object, which may hold the result: nothing waits for the
                # collector.
                result: Any = engine._late(job, promise, place)
            else:
                result = _outcome(engine.executor, job, promise, place)
        except Exception as error:
            self._tell(None, error)
        else:
            self._tell(result, None)

    def _tell(self, result: Any, error: Exception | None) -> None:
        """Give the job's result, or what it raised."""
        raise NotImplementedError


class _Awaited(_Running):
    """A job that a task waits for.

    Args:
        future: Gives the result.
    """

    __slots__ = ("future",)

    def __init__(self, future: asyncio.Future[Any]) -> None:
        self.future = future

    def _tell(self, result: Any, error: Exception | None) -> None:
        if error is None:
            self.future.set_result(result)
        else:
            self.future.set_exception(error)


class RunningFit(_Running):
    """A fit that no task waits for: a subclass says what happens at its end. See :meth:`Engine.begin`."""

    __slots__ = ("_dispatch", "_name")

    _dispatch: int
    _name: str

    def ended(self, fitted: Fitted | None, error: Exception | None) -> None:
        """Take the result, or what the fit raised."""
        raise NotImplementedError

    def stop(self) -> None:
        """End the fit before its time, where a task would be cancelled."""
        self._leave("cancelled")

    def _tell(self, result: Any, error: Exception | None) -> None:
        outcome = "done" if error is None else "failed" if isinstance(error, FedsimError) else "cancelled"
        self._leave(outcome)
        self.ended(result, error)

    def _leave(self, outcome: str) -> None:
        self.leave()
        self._engine._trace.record(JOB_END, self._client, self._dispatch, self._name, outcome)


AtWork = dict[int, dict[int, _Running]]
"""The jobs under way, by client and by number."""


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
