"""Worker processes, and who of them does which run."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from fedsim.processes.python_again import python, variables

SHUTDOWN_TIMEOUT_S = 10.0
"""How long a process may take to end by itself."""

COMMAND = python("-m", "fedsim.studies.worker")
"""A worker; the rest of Python's path comes with each task."""

BYTES_PER_JOB = 10**9
"""Memory that a run should find free."""

Message = Mapping[str, Any]


def _how_it_ended(status: int) -> str:
    if status >= 0:
        return f"its process ended with status {status}"
    said = f"its process was ended by {signal.Signals(-status).name}"
    return f"{said}, perhaps for want of memory: do fewer runs at once" if status == -signal.SIGKILL else said


def default_jobs(runs: int) -> int:
    """Return how many of some runs go beside each other: one for each core, as far as there is memory."""
    return max(1, min(len(os.sched_getaffinity(0)), runs, _free_memory() // BYTES_PER_JOB))


def _free_memory() -> int:
    """Return how many bytes are available; all of the machine's where the system does not say."""
    try:
        lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


class WorkerPool:
    """Processes that do tasks, as a context that ends them when it is left.

    A process that ends in the middle of a task takes only that task with it.

    Args:
        tasks: What to do, for :mod:`fedsim.studies.worker`.
        jobs: How many at once.
    """

    def __init__(self, tasks: Sequence[Mapping[str, Any]], jobs: int) -> None:
        self._left = deque((number, {**task, "wait": False}) for number, task in enumerate(tasks))
        self._messages = queue.SimpleQueue[tuple[int, Message]]()
        self._processes: list[subprocess.Popen[str]] = []
        self._is_open = True
        self._lock = threading.Lock()
        self._num_tasks = len(tasks)
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(jobs)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._is_open = False
        self._left.clear()
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(SHUTDOWN_TIMEOUT_S)
            process.kill()
            process.wait()
        for thread in self._threads:
            thread.join()
        for process in self._processes:
            for pipe in (process.stdin, process.stdout):
                with suppress(OSError):
                    pipe.close()  # type: ignore[union-attr]

    def messages(self) -> Iterator[tuple[int, Message]]:
        """Yield what processes tell, with the number of the task, until all tasks have ended.

        Of a task under way that is its ``round``; of one that has ended, either whether it is ``finite`` or
        why it has ``failed``.
        """
        ended = 0
        while ended < self._num_tasks:
            number, message = self._messages.get()
            ended += "round" not in message
            yield number, message

    def _work(self) -> None:
        process = None
        while True:
            try:
                number, task = self._left.popleft()
            except IndexError:
                return
            try:
                process = process or self._started()
            except OSError as error:  # the machine lacks memory, or has too many processes
                self._messages.put((number, {"failed": f"its process could not be started: {error}"}))
                continue
            if process is None:
                return
            last = self._done(process, number, task)
            if last is None:
                status = process.wait()
                process = None
                last = {"failed": _how_it_ended(status)}
            if "busy" in last:  # another study does it: the others first
                self._left.append((number, {**task, "wait": True}))
            else:
                self._messages.put((number, last))

    def _started(self) -> subprocess.Popen[str] | None:
        with self._lock:
            if not self._is_open:
                return None
            # A session of its own: Ctrl-C is for this process, which ends the others.
            process = subprocess.Popen(  # noqa: S603
                COMMAND,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
                env=variables(),
            )
            self._processes.append(process)
            return process

    def _done(self, process: subprocess.Popen[str], number: int, task: Message) -> Message | None:
        """Have a task done, and return the last message about it; None if the process has ended before."""
        assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018
        try:
            process.stdin.write(json.dumps(task) + "\n")
            process.stdin.flush()
        except OSError:
            return None
        for line in process.stdout:
            message: Message = json.loads(line)
            if "round" not in message:
                return message
            self._messages.put((number, message))
        return None
