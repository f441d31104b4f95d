"""Threads of this process, each with one torch thread pinned, fed earliest-due first.

Parallelism comes from jobs, never from inside an operation: with one intra-op thread in *every* worker a result
is the same bit for bit whatever the number of workers.
"""

from __future__ import annotations

import heapq
import os
import threading
from concurrent.futures import Future
from typing import Any

import torch

from fedsim.engine.executors.base import Due, Executor
from fedsim.engine.jobs import Job
from fedsim.engine.running import run
from fedsim.engine.worker import Resources, StoppedError, Worker


class Threads(Executor):
    """A pool of threads over a queue ordered by due instant."""

    def open(self, resources: Resources) -> None:
        """Start the threads."""
        self._queue: list[tuple[Due, Future[Any], Job]] = []
        self._ready = threading.Condition()
        self._stopping = threading.Event()
        if resources.device.type == "cuda":
            _make_cuda_deterministic()
        self._threads = [
            threading.Thread(target=self._work, args=(resources,), name=f"fedsim-worker-{number}", daemon=True)
            for number in range(self.config.workers)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, job: Job, due: Due) -> Future[Any]:
        """Queue a job."""
        future: Future[Any] = Future()
        with self._ready:
            heapq.heappush(self._queue, (due, future, job))
            self._ready.notify()
        return future

    def close(self) -> None:
        """Drop the queue, stop running jobs at their next step, and wait for the threads."""
        with self._ready:
            self._stopping.set()
            for _, future, _ in self._queue:
                future.cancel()
            self._queue.clear()
            self._ready.notify_all()
        for thread in self._threads:
            thread.join()

    def _work(self, resources: Resources) -> None:
        # The setting is kept per thread by OpenMP: pinning it in the main thread alone is not enough.
        torch.set_num_threads(1)
        worker = Worker(resources, self._stopping)
        stream = torch.cuda.Stream() if resources.device.type == "cuda" else None
        while (taken := self._take()) is not None:
            future, job = taken
            try:
                if stream is None:
                    result = run(job, worker)
                else:
                    with torch.cuda.stream(stream):
                        result = run(job, worker)
                        stream.synchronize()
            except StoppedError:
                future.set_exception(StoppedError())
            except BaseException as error:
                # Whatever it was, it belongs to whoever waits for the result.
                future.set_exception(error)
            else:
                future.set_result(result)

    def _take(self) -> tuple[Future[Any], Job] | None:
        """Wait for the job that is due first; None when the pool is closing."""
        while True:
            with self._ready:
                while not self._queue and not self._stopping.is_set():
                    self._ready.wait()
                if self._stopping.is_set():
                    return None
                _, future, job = heapq.heappop(self._queue)
            if future.set_running_or_notify_cancel():
                return future, job


def _make_cuda_deterministic() -> None:
    """Choose repeatable kernels; must come before the first use of cuBLAS."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = False


PLUGIN = Threads
