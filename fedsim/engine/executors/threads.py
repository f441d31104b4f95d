"""Threads of this process, each with one torch thread pinned, fed earliest-due first.

Parallelism comes from jobs, never from inside an operation: with one intra-op thread in *every* worker a
result is the same bit for bit whatever the number of workers. A single worker needs no thread: whoever waits
for a job does it when its result is due, which spares two threads from taking turns with the interpreter. On
the virtual-time loop that is the loop's thread; on a real one it is a helper thread, so jobs take turns.
"""

from __future__ import annotations

import heapq
import os
import threading
from concurrent.futures import Future
from contextlib import nullcontext
from typing import Any

import torch

from fedsim.engine.execute import one_torch_thread, run
from fedsim.engine.executors.base import Due, Executor
from fedsim.engine.jobs import Job
from fedsim.engine.worker_state import Resources, Worker
from fedsim.errors import RunError


class Threads(Executor):
    """A pool of threads, or the thread of whoever waits.

    Raises:
        RunError: So many threads cannot be started.
    """

    def open(self, resources: Resources) -> None:
        """Start the threads, if there are any."""
        self._start(resources, self.config.workers if self.config.workers > 1 else 0)

    def submit(self, job: Job, due: Due) -> Future[Any]:
        """Queue a job."""
        future: Future[Any] = Future()
        with self._ready:
            if self._stopping.is_set():
                future.cancel()
                return future
            self._jobs[future] = job
            if self._threads:
                heapq.heappush(self._queue, (due, future))
                self._ready.notify()
        # A job that nobody wants any more is freed at once, though its place in the queue stays.
        future.add_done_callback(self._forget)
        return future

    def wait(self, promise: Future[Any]) -> Any:
        """Return the result when it is there; a single worker does the job now."""
        if not self._threads and promise in self._jobs:
            with self._turn, one_torch_thread():
                self._do(promise, self._worker)
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
        self._queue: list[tuple[Due, Future[Any]]] = []
        self._ready = threading.Condition()
        self._turn = threading.Lock()
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        _choose_repeatable_kernels(resources.device)
        if not num_threads:
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
            self._do(future, worker)
            del future  # an idle worker keeps no result alive

    def _next(self) -> Future[Any] | None:
        """Wait for the job that is due first; None when the executor is closing."""
        with self._ready:
            self._ready.wait_for(lambda: self._queue or self._stopping.is_set())
            return None if self._stopping.is_set() else heapq.heappop(self._queue)[1]

    def _do(self, future: Future[Any], worker: Worker) -> None:
        """Run a job and settle its future, unless somebody else has."""
        job = self._jobs.pop(future, None)
        if job is None or not future.set_running_or_notify_cancel():
            return
        stream = worker.stream
        try:
            with nullcontext() if stream is None else torch.cuda.stream(stream):
                result = run(job, worker)
                if stream is not None:
                    stream.synchronize()
        except BaseException as error:
            # Whatever it was, it belongs to whoever waits for the result.
            future.set_exception(error)
        else:
            future.set_result(result)

    def _forget(self, future: Future[Any]) -> None:
        self._jobs.pop(future, None)


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
