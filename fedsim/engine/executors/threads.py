"""Threads of this process, each with one torch thread pinned, fed earliest-due first.

Parallelism comes from jobs, never from inside an operation: with one intra-op thread in *every* worker a
result is the same bit for bit whatever the number of workers. A job with long kernels is a
:class:`PooledJob`, which a worker thread takes as soon as it can. Any other job would take turns with the
interpreter, and cost more there than it saves. It is a :class:`DeferredJob`: the thread that waits for its
result runs it, and with it all deferred jobs of the same batch key (:mod:`fedsim.engine.batched`). On the
virtual-time loop that is the loop's thread, on a real one a helper thread.
"""

from __future__ import annotations

import heapq
import threading
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

from fedsim.engine.batched.kinds import Ways, batch_key
from fedsim.engine.batched.run_together import run_together
from fedsim.engine.execute import one_torch_thread
from fedsim.engine.executors.base import Due, Executor, Promise
from fedsim.engine.fit_job_cache import MAX_KINDS
from fedsim.engine.jobs import Fit, Job
from fedsim.engine.like_fits import LikeFits
from fedsim.engine.worker_state import Resources, Worker, choose_repeatable_kernels, pin_thread
from fedsim.errors import JobError, RunError
from fedsim.params import Work

LONG_STEP_FLOPS = 4e6
"""From so many operations in a batch on, kernels take longer than the interpreter's work around them."""

LONG_TOGETHER_FLOPS = 1e8
"""The same of jobs that can be done together, at which the interpreter has less work for each."""


class PooledJob(Future[Any]):
    """A job for the worker threads; it is freed when it starts or is given up."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.job: Job | None = job

    def cancel(self) -> bool:
        """Give it up, unless it has started; its place in the queue stays."""
        if is_cancelled := super().cancel():
            self.job = None
        return is_cancelled

    def start(self) -> Job | None:
        """Return the job if it was not given up."""
        if not self.set_running_or_notify_cancel():
            return None
        job, self.job = self.job, None
        return job


class DeferredJob:
    """A job, or like fits, that is run by a thread that waits for its result.

    Attributes:
        group: The jobs that can be computed together with it and have not started, and itself.
        has_batch_key: Whether there can be others.
        result: The result, or the exception that the job raised.
    """

    __slots__ = ("_job", "group", "has_batch_key", "result")

    def __init__(self, job: Job | LikeFits, group: Group, *, has_batch_key: bool) -> None:
        self._job: Job | LikeFits | None = job
        self.group = group
        self.has_batch_key = has_batch_key
        self.result: Any = CancelledError()
        group[self] = None

    @property
    def has_started(self) -> bool:
        """Whether it has started or was given up."""
        return self._job is None

    def cancel(self) -> bool:
        """Give it up, unless it has started."""
        return self.start() is not None

    def start(self) -> Job | LikeFits | None:
        """Return the job if it has not started and was not given up."""
        job, self._job = self._job, None
        self.group.pop(self, None)
        return job


Group = dict[DeferredJob, None]
"""Deferred jobs of one batch key, in the order in which they were submitted."""


class _ThreadState(threading.local):
    is_running_a_job = False


class Threads(Executor):
    """A pool of threads, and the thread of whoever waits.

    Raises:
        RunError: So many threads cannot be started.
    """

    def open(self, resources: Resources) -> None:
        """Start the threads, if there are to be several."""
        self._start(resources, self.config.workers if self.config.workers > 1 else 0)

    def _start(self, resources: Resources, num_threads: int) -> None:
        self._resources = resources
        self._queue: list[tuple[Due, PooledJob]] = []
        self._groups: dict[Hashable, Group] = {}
        self._batch_keys: dict[object, Hashable | None] = {}  # by what is alike in fits
        self._thread_state = _ThreadState()
        self._jobs_done: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._ready = threading.Condition()
        self._deferred_lock = threading.Lock()
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._helpers = ThreadPoolExecutor(max(1, num_threads - 1), "fedsim-helper")  # started when needed
        choose_repeatable_kernels(resources.device)
        self._worker = Worker(resources, self._stopping)
        for number in range(num_threads):
            thread = threading.Thread(target=self._work, name=f"fedsim-worker-{number}", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                self.close()
                raise RunError(
                    f"this computer starts no more than {number} of {num_threads} worker threads ({error}): "
                    "lower engine.workers, or the workers of a client process"
                ) from error
            self._threads.append(thread)

    @property
    def jobs_done(self) -> Mapping[str, Mapping[str, int]]:
        """How many jobs of each kind were done together with others, and how many by themselves and why."""
        return self._jobs_done

    def submit(self, job: Job, due: Due, *, step_flops: float | None = None) -> Promise:
        """Queue a job for the threads, or keep it for whoever waits."""
        key = self._batch_key(job) if self.config.batching == "auto" else None
        long_flops = LONG_STEP_FLOPS if key is None else LONG_TOGETHER_FLOPS
        is_long = key is None if step_flops is None else step_flops >= long_flops
        if not (self._threads and is_long):
            group = {} if key is None else self._groups.setdefault(key, {})
            return DeferredJob(job, group, has_batch_key=key is not None)
        pooled = PooledJob(job)
        with self._ready:
            if self._stopping.is_set():
                pooled.cancel()
            else:
                heapq.heappush(self._queue, (due, pooled))
                self._ready.notify()
        return pooled

    def submit_like(self, fits: LikeFits, due: Due, *, step_flops: float | None = None) -> Promise | None:
        """Keep fits for whoever waits, if they can be done together and their steps are short."""
        key = self._batch_key(fits.fit) if self.config.batching == "auto" else None
        is_long = bool(self._threads) and (step_flops is None or step_flops >= LONG_TOGETHER_FLOPS)
        if key is None or is_long or self._resources.verify:
            return None
        return DeferredJob(fits, self._groups.setdefault(key, {}), has_batch_key=True)

    def _batch_key(self, job: Job) -> Hashable | None:
        like = job.like if isinstance(job, Fit) else None
        if like is None:
            return batch_key(job, self._resources)
        if like not in self._batch_keys:
            if len(self._batch_keys) == MAX_KINDS:
                self._batch_keys.clear()
            self._batch_keys[like] = batch_key(job, self._resources)
        return self._batch_keys[like]

    def wait(self, promise: Any) -> Any:
        """Return the result when it is there; a deferred job is run now.

        Raises:
            JobError: The thread that waits runs a job itself.
        """
        self._check_who_waits()
        if isinstance(promise, Future):
            return promise.result()
        with self._deferred_lock:
            if not (promise.has_started or self._stopping.is_set()):
                with one_torch_thread():
                    # A copy, since a result that nobody can look at any more takes its job out at any time.
                    self._run_deferred(list(promise.group))
        result = promise.result
        if isinstance(result, BaseException):
            raise result
        return result

    def spread(self, work: Work, blocks: Sequence[int]) -> None:
        """Do work on blocks, in as many threads as there are workers, of which one is the caller's."""
        first, *others = [blocks[number :: self.config.workers] for number in range(self.config.workers)]
        # In a copy of the context each, which says what NumPy warns of.
        futures = [self._helpers.submit(copy_context().run, work, part) for part in others]
        work(first)
        for future in futures:
            future.result()

    def close(self) -> None:
        """Drop what has not started, stop running jobs at their next step, and wait for the threads."""
        with self._ready:
            self._stopping.set()
            queue, self._queue = self._queue, []
            self._ready.notify_all()
        for _, pooled in queue:
            pooled.cancel()
        for thread in self._threads:
            thread.join()
        self._helpers.shutdown()
        with self._deferred_lock:  # a thread that waits may run jobs
            pass

    def _check_who_waits(self) -> None:
        if self._thread_state.is_running_a_job:
            raise JobError(
                "a job looked at a result that was pending, and would wait for it for ever: pass models to a "
                "call as arguments, not in a closure, a partial function or a field of a step"
            )

    def _work(self) -> None:
        """Run the jobs of the queue in a worker thread."""
        pin_thread()
        worker = Worker(self._resources, self._stopping)
        while (pooled := self._next()) is not None:
            self._run_pooled(pooled, worker)
            del pooled  # an idle worker keeps no result alive

    def _next(self) -> PooledJob | None:
        """Wait for the job that is due first; None when the executor is closing."""
        with self._ready:
            self._ready.wait_for(lambda: self._queue or self._stopping.is_set())
            return None if self._stopping.is_set() else heapq.heappop(self._queue)[1]

    def _run_pooled(self, pooled: PooledJob, worker: Worker) -> None:
        if (job := pooled.start()) is None:
            return
        self._jobs_done[_name(job)]["in a thread"] += 1
        try:
            (result,), _ = self._run([job], worker)
        except BaseException as error:
            result = error
        if isinstance(result, BaseException):
            # Whatever it was, it belongs to whoever waits for the result.
            pooled.set_exception(result)
        else:
            pooled.set_result(result)

    def _run_deferred(self, group: Sequence[DeferredJob]) -> None:
        """Run the jobs of a group, but for those that were given up in the meantime."""
        started = [(deferred, job) for deferred in group if (job := deferred.start()) is not None]
        if not started:
            return
        try:
            results, ways = self._run([job for _, job in started], self._worker)
        except BaseException as error:  # Ctrl-C
            for deferred, _ in started:
                deferred.result = error
            raise
        first, job = started[0]
        self._jobs_done[_name(job)].update(ways if first.has_batch_key else {"no batched form": len(started)})
        for (deferred, _), result in zip(started, results, strict=True):
            deferred.result = result

    def _run(self, jobs: Sequence[Job | LikeFits], worker: Worker) -> tuple[list[Any], Ways]:
        """Run jobs of one group; return their results, or what they raised, and in which ways they ran."""
        times = self.job_times
        began_ns = 0 if times is None else times.now_ns()
        self._thread_state.is_running_a_job = True
        try:
            with worker.on_its_stream():
                done = run_together(jobs, worker)
        finally:
            self._thread_state.is_running_a_job = False
        if times is not None:
            count = sum(len(job) if isinstance(job, LikeFits) else 1 for job in jobs)
            times.done(_name(jobs[0]), count, began_ns)
        return done


def _name(job: Job | LikeFits) -> str:
    return type(job.fit if isinstance(job, LikeFits) else job).__name__.lower()


PLUGIN = Threads
