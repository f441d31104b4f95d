"""A pool of threads over a queue ordered by due instant."""

from __future__ import annotations

import heapq
import threading
from concurrent.futures import Future
from typing import Any

import torch

from fedsim.engine.executors.base import Due
from fedsim.engine.executors.in_process import choose_repeatable_kernels, do, new_stream
from fedsim.engine.jobs import Job
from fedsim.engine.worker_state import Resources, Worker
from fedsim.errors import RunError


class Pool:
    """So many threads.

    Args:
        resources: What all workers share.
        workers: How many.

    Raises:
        RunError: So many threads cannot be started.
    """

    def __init__(self, resources: Resources, workers: int) -> None:
        self._queue: list[tuple[Due, Future[Any], Job]] = []
        self._ready = threading.Condition()
        self._stopping = threading.Event()
        choose_repeatable_kernels(resources.device)
        self._threads = [
            threading.Thread(
                target=self._work, args=(resources,), name=f"fedsim-worker-{number}", daemon=True
            )
            for number in range(workers)
        ]
        for number, thread in enumerate(self._threads):
            try:
                thread.start()
            except RuntimeError as error:
                self._threads = self._threads[:number]
                self.close()
                raise RunError(
                    f"this computer starts no more than {number} of {workers} worker threads ({error}): "
                    "lower engine.workers, or the --workers of `fedsim join`"
                ) from error

    def submit(self, job: Job, due: Due) -> Future[Any]:
        """Queue a job."""
        future: Future[Any] = Future()
        with self._ready:
            if self._stopping.is_set():
                future.cancel()
            else:
                heapq.heappush(self._queue, (due, future, job))
                self._ready.notify()
        return future

    def wait(self, future: Future[Any]) -> Any:
        """Block until the result is there."""
        return future.result()

    def close(self) -> None:
        """Drop the queue, stop running jobs at their next step, and wait for the threads."""
        with self._ready:
            self._stopping.set()
            dropped, self._queue = self._queue, []
            self._ready.notify_all()
        for _, future, _ in sorted(dropped, key=lambda entry: entry[0]):
            future.cancel()
        for thread in self._threads:
            thread.join()

    def _work(self, resources: Resources) -> None:
        # The setting is kept per thread by OpenMP: pinning it in the main thread alone is not enough.
        torch.set_num_threads(1)
        worker = Worker(resources, self._stopping)
        stream = new_stream(resources.device)
        while (taken := self._take()) is not None:
            future, job = taken
            do(job, worker, future, stream)
            del taken, future, job  # an idle worker keeps no job and no result alive

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
