"""Threads of this process, each with one torch thread pinned, fed earliest-due first.

Parallelism comes from jobs, never from inside an operation: with one intra-op thread in *every* worker a
result is the same bit for bit whatever the number of workers. Only jobs with long kernels go to the threads
as soon as they are submitted. The others would take turns with the interpreter, and cost more there than they
save: whoever waits for one does it then, which on the virtual-time loop is the loop's thread and on a real
one a helper thread. Of those, jobs that are alike are done together
(:mod:`fedsim.engine.batched`).
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
from fedsim.engine.jobs import Fit, Job
from fedsim.engine.usual_fits import MOST_KINDS
from fedsim.engine.worker_state import Resources, Worker, choose_repeatable_kernels, pin_thread
from fedsim.errors import JobError, RunError
from fedsim.params import Work

LONG_STEP_FLOPS = 4e6
"""From so many operations in a batch on, kernels take longer than the interpreter's work around them."""

LONG_TOGETHER_FLOPS = 1e8
"""The same of jobs that can be done together, at which the interpreter has less work for each."""


class Waiting:
    """A job that whoever waits for it does.

    Args:
        job: The job.
        key: What it has in common with jobs that can be done together with it, if anything.
        alike: Those jobs, to which it is added.
    """

    __slots__ = ("alike", "job", "key", "result")

    def __init__(self, job: Job, key: Hashable | None, alike: Alike) -> None:
        self.job: Job | None = job  # None from its beginning on
        self.key = key
        self.result: Any = CancelledError()  # or the exception that it raised
        self.alike = alike
        alike[self] = None

    def cancel(self) -> bool:
        """Give it up, unless it has begun."""
        return self.begin() is not None

    def begin(self) -> Job | None:
        """Return the job if nobody has begun it."""
        job, self.job = self.job, None
        self.alike.pop(self, None)
        return job


Alike = dict[Waiting, None]
"""Jobs of one :func:`batch_key` in the order in which they were submitted."""


class _AtWork(threading.local):
    """Whether this thread is at a job."""

    is_so = False


class Threads(Executor):
    """A pool of threads, and the thread of whoever waits.

    Raises:
        RunError: So many threads cannot be started.
    """

    def open(self, resources: Resources) -> None:
        """Start the threads, if there are any."""
        self._start(resources, self.config.workers if self.config.workers > 1 else 0)

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
            return Waiting(job, key, {} if key is None else self._alike.setdefault(key, {}))
        future: Future[Any] = Future()
        with self._ready:
            if self._stopping.is_set():
                future.cancel()
                return future
            self._jobs[future] = job
            heapq.heappush(self._queue, (due, future))
            self._ready.notify()
        # A job that nobody wants any more is freed at once, though its place in the queue stays.
        future.add_done_callback(self._forget)
        return future

    def _batch_key(self, job: Job) -> Hashable | None:
        like = job.like if isinstance(job, Fit) else None
        if like is None:
            return batch_key(job, self._resources)
        if like not in self._keys:
            if len(self._keys) == MOST_KINDS:
                self._keys.clear()
            self._keys[like] = batch_key(job, self._resources)
        return self._keys[like]

    def wait(self, promise: Any) -> Any:
        """Return the result when it is there; what no thread does is done now.

        Raises:
            JobError: It is a job that waits, for another one.
        """
        self._check_who_waits()
        if isinstance(promise, Future):
            return promise.result()
        with self._turn:
            if promise.job is not None and not self._stopping.is_set():
                with one_torch_thread():
                    # A copy, since a result that nobody can look at any more takes its job out at any time.
                    self._do_waiting(list(promise.alike))
        result = promise.result
        if isinstance(result, BaseException):
            raise result
        return result

    def spread(self, work: Work, blocks: Sequence[int]) -> None:
        """Do work on blocks, in as many threads as there are workers, of which one is the caller's."""
        first, *others = [blocks[number :: self.config.workers] for number in range(self.config.workers)]
        # In a copy of the context each, which says what NumPy warns of.
        helped = [self._helpers.submit(copy_context().run, work, part) for part in others]
        work(first)
        for one in helped:
            one.result()

    def close(self) -> None:
        """Drop what has not started, stop running jobs at their next step, and wait for the threads."""
        with self._ready:
            self._stopping.set()
            self._queue.clear()
            self._ready.notify_all()
        for future in list(self._jobs):
            future.cancel()
        for thread in self._threads:
            thread.join()
        self._helpers.shutdown()
        # A helper thread may be at a job.
        with self._turn:
            pass

    def _check_who_waits(self) -> None:
        if self._at_work.is_so:
            raise JobError(
                "a job looked at a result that was pending, and would wait for it for ever: pass models to a "
                "call as arguments, not in a closure, a partial function or a field of a step"
            )

    def _start(self, resources: Resources, num_threads: int) -> None:
        self._resources = resources
        self._jobs: dict[Future[Any], Job] = {}  # those of the threads that have not begun
        self._queue: list[tuple[Due, Future[Any]]] = []
        self._alike: dict[Hashable, Alike] = {}
        self._keys: dict[object, Hashable | None] = {}  # by what is alike in fits
        self._at_work = _AtWork()
        self._jobs_done: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._ready = threading.Condition()
        self._turn = threading.Lock()
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._helpers = ThreadPoolExecutor(max(1, num_threads - 1), "fedsim-helper")  # begun when needed
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

    def _work(self) -> None:
        pin_thread()
        worker = Worker(self._resources, self._stopping)
        while (future := self._next()) is not None:
            self._do(future, worker)
            del future  # an idle worker keeps no result alive

    def _next(self) -> Future[Any] | None:
        """Wait for the job that is due first; None when the executor is closing."""
        with self._ready:
            self._ready.wait_for(lambda: self._queue or self._stopping.is_set())
            return None if self._stopping.is_set() else heapq.heappop(self._queue)[1]

    def _do_waiting(self, alike: Sequence[Waiting]) -> None:
        """Run jobs that are alike, but for those that were given up in the meantime."""
        begun = [(one, job) for one in alike if (job := one.begin()) is not None]
        if not begun:
            return
        try:
            results, ways = self._run([job for _, job in begun], self._worker)
        except BaseException as error:  # Ctrl-C
            for one, _ in begun:
                one.result = error
            raise
        one, job = begun[0]
        self._jobs_done[type(job).__name__.lower()].update(
            ways if one.key is not None else {"no batched form": len(begun)}
        )
        for (one, _), result in zip(begun, results, strict=True):
            one.result = result

    def _do(self, future: Future[Any], worker: Worker) -> None:
        """Run a job and settle its future, unless somebody else has."""
        job = self._jobs.pop(future, None)
        if job is None or not future.set_running_or_notify_cancel():
            return
        self._jobs_done[type(job).__name__.lower()]["in a thread"] += 1
        try:
            (result,), _ = self._run([job], worker)
        except BaseException as error:
            result = error
        if isinstance(result, BaseException):
            # Whatever it was, it belongs to whoever waits for the result.
            future.set_exception(result)
        else:
            future.set_result(result)

    def _run(self, jobs: Sequence[Job], worker: Worker) -> tuple[list[Any], Ways]:
        """Run jobs that are alike; return their results, or what they raised, and in which ways they ran."""
        times = self.job_times
        began_ns = 0 if times is None else times.now_ns()
        self._at_work.is_so = True
        try:
            with worker.on_its_stream():
                done = run_together(jobs, worker)
        finally:
            self._at_work.is_so = False
        if times is not None:
            times.done(type(jobs[0]).__name__.lower(), len(jobs), began_ns)
        return done

    def _forget(self, future: Future[Any]) -> None:
        self._jobs.pop(future, None)


PLUGIN = Threads
