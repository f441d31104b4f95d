"""No thread at all: a job is done by whoever waits for it, when its result is due.

A job that nobody waits for any more is therefore never begun. On the virtual-time loop the waiting thread is
the loop's; on a real one it is a helper thread, so jobs take turns.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

from fedsim.engine.executors.base import Due
from fedsim.engine.executors.in_process import choose_repeatable_kernels, do, new_stream, one_torch_thread
from fedsim.engine.jobs import Job
from fedsim.engine.worker_state import Resources, Worker


class Alone:
    """One worker, without a thread of its own.

    Args:
        resources: What jobs need.
    """

    def __init__(self, resources: Resources) -> None:
        self._jobs: dict[Future[Any], Job] = {}
        self._turn = threading.Lock()
        self._stopping = threading.Event()
        self._worker = Worker(resources, self._stopping)
        choose_repeatable_kernels(resources.device)
        self._stream = new_stream(resources.device)

    def submit(self, job: Job, due: Due) -> Future[Any]:
        """Remember a job."""
        future: Future[Any] = Future()
        if self._stopping.is_set():
            future.cancel()
        else:
            self._jobs[future] = job
            future.add_done_callback(self._forget)
        return future

    def wait(self, future: Future[Any]) -> Any:
        """Do the job now, and return its result."""
        with self._turn:
            job = self._jobs.get(future)
            if job is not None and future.set_running_or_notify_cancel():
                with one_torch_thread():
                    do(job, self._worker, future, self._stream)
        return future.result()

    def close(self) -> None:
        """Drop what has not begun; a job that runs in another thread ends at its next step."""
        self._stopping.set()
        for future in list(self._jobs):
            future.cancel()
        with self._turn:
            self._jobs.clear()

    def _forget(self, future: Future[Any]) -> None:
        self._jobs.pop(future, None)
