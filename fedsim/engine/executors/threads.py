"""Threads of this process, each with one torch thread pinned, fed earliest-due first.

Parallelism comes from jobs, never from inside an operation: with one intra-op thread in *every* worker a
result is the same bit for bit whatever the number of workers. Only jobs with long kernels go to the threads
as soon as they are submitted. The others would take turns with the interpreter, and cost more there than they
save: whoever waits for one does it then, which on the virtual-time loop is the loop's thread and on a real
one a helper thread. Of those, jobs that are alike and due are done together
(:mod:`fedsim.engine.together`).
"""

from __future__ import annotations

import heapq
import os
import threading
from collections import defaultdict
from collections.abc import Hashable, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from math import inf
from typing import Any

import torch

from fedsim.engine.execute import one_torch_thread
from fedsim.engine.executors.base import Due, Executor
from fedsim.engine.jobs import Job
from fedsim.engine.together import batch_key, run_together
from fedsim.engine.worker_state import Resources, Worker
from fedsim.errors import RunError

LONG_STEP_FLOPS = 4e6
"""From so many operations in a batch on, kernels take longer than the interpreter's work around them."""


class Threads(Executor):
    """A pool of threads, and the thread of whoever waits.

    Raises:
        RunError: So many threads cannot be started.
    """

    def open(self, resources: Resources) -> None:
        """Start the threads, if there are any."""
        self._start(resources, self.config.workers if self.config.workers > 1 else 0)

    def submit(self, job: Job, due: Due, *, step_flops: float = inf) -> Future[Any]:
        """Queue a job for the threads, or keep it for whoever waits."""
        future: Future[Any] = Future()
        key = batch_key(job, self._resources) if self.config.batching == "auto" else None
        with self._ready:
            if self._stopping.is_set():
                future.cancel()
                return future
            self._jobs[future] = job
            if key is not None:
                self._alike[key][future] = due[0]
                self._keys[future] = key
            elif self._threads and step_flops >= LONG_STEP_FLOPS:
                heapq.heappush(self._queue, (due, future))
                self._queued.add(future)
                self._ready.notify()
        # A job that nobody wants any more is freed at once, though its place in the queue stays.
        future.add_done_callback(self._forget)
        return future

    def wait(self, promise: Future[Any], now_ns: int = -1) -> Any:
        """Return the result when it is there; what no thread does is done now."""
        if not promise.done() and promise not in self._queued:
            with self._turn, one_torch_thread():
                self._do(self._due_with(promise, now_ns), self._worker)
        return promise.result()

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
        # A helper thread may be at a job.
        with self._turn:
            pass

    def _start(self, resources: Resources, num_threads: int) -> None:
        self._resources = resources
        self._jobs: dict[Future[Any], Job] = {}  # those that have not begun
        self._alike: defaultdict[Hashable, dict[Future[Any], int]] = defaultdict(
            dict
        )  # and when they are due
        self._keys: dict[Future[Any], Hashable] = {}
        self._queue: list[tuple[Due, Future[Any]]] = []
        self._queued: set[Future[Any]] = set()  # asked for membership only: a set has no order
        self._ready = threading.Condition()
        self._turn = threading.Lock()
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        _choose_repeatable_kernels(resources.device)
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
        # The setting is kept per thread by OpenMP: pinning it in the main thread alone is not enough.
        torch.set_num_threads(1)
        worker = Worker(self._resources, self._stopping)
        while (future := self._next()) is not None:
            self._do([future], worker)
            del future  # an idle worker keeps no result alive

    def _next(self) -> Future[Any] | None:
        """Wait for the job that is due first; None when the executor is closing."""
        with self._ready:
            self._ready.wait_for(lambda: self._queue or self._stopping.is_set())
            return None if self._stopping.is_set() else heapq.heappop(self._queue)[1]

    def _due_with(self, promise: Future[Any], now_ns: int) -> list[Future[Any]]:
        """Return a job and those that are alike and due by now, in the order in which they were submitted."""
        key = self._keys.get(promise)
        if key is None:
            return [promise]
        # A copy, since a result that nobody can look at any more takes its job out at any time.
        alike = list(self._alike[key].items())
        return [future for future, due_ns in alike if due_ns <= now_ns or future is promise]

    def _do(self, futures: Sequence[Future[Any]], worker: Worker) -> None:
        """Run jobs that are alike and settle their futures, but for those that somebody else has settled."""
        begun: dict[Future[Any], Job] = {}
        for future in futures:
            job = self._jobs.get(future)
            if job is not None and future.set_running_or_notify_cancel():
                begun[future] = job
            self._forget(future)
        if not begun:
            return
        stream = worker.stream
        with nullcontext() if stream is None else torch.cuda.stream(stream):
            results = run_together(list(begun.values()), worker)
            if stream is not None:
                stream.synchronize()
        for future, result in zip(begun, results, strict=True):
            if isinstance(result, BaseException):
                # Whatever it was, it belongs to whoever waits for the result.
                future.set_exception(result)
            else:
                future.set_result(result)

    def _forget(self, future: Future[Any]) -> None:
        self._jobs.pop(future, None)
        self._queued.discard(future)
        if (key := self._keys.pop(future, None)) is not None:
            alike = self._alike[key]
            alike.pop(future, None)
            if not alike:
                del self._alike[key]


def _choose_repeatable_kernels(device: torch.device) -> None:
    """On CUDA, choose deterministic kernels; must come before the first use of cuBLAS."""
    if device.type != "cuda":
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = False


PLUGIN = Threads
