"""What the two ways of working in this process share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from typing import Any, Protocol

import torch

from fedsim.engine.execute import run
from fedsim.engine.executors.base import Due
from fedsim.engine.jobs import Job
from fedsim.engine.worker_state import Worker


class Crew(Protocol):
    """Does the jobs of a run; its methods are those of :class:`fedsim.engine.executors.base.Executor`."""

    def submit(self, job: Job, due: Due) -> Future[Any]:
        """Take a job."""

    def wait(self, future: Future[Any]) -> Any:
        """Return the result when it is there."""

    def close(self) -> None:
        """Give up what has not finished."""


def do(job: Job, worker: Worker, future: Future[Any], stream: torch.cuda.Stream | None) -> None:
    """Run a job and settle its future, which nobody can cancel any more."""
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


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Pin the calling thread, which is not a worker's, for one job: sums over threads end in other bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def new_stream(device: torch.device) -> torch.cuda.Stream | None:
    """Return a CUDA stream for one worker; None on the CPU."""
    return torch.cuda.Stream() if device.type == "cuda" else None  # type: ignore[no-untyped-call]


def choose_repeatable_kernels(device: torch.device) -> None:
    """On CUDA, choose deterministic kernels; must come before the first use of cuBLAS."""
    if device.type != "cuda":
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = False
