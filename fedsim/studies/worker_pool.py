"""A pool of workers that do the runs of a study; most are processes of this machine."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol, Self

from fedsim.processes.children import python, variables
from fedsim.system import num_usable_cores

SHUTDOWN_TIMEOUT_S = 10.0
"""Time until a process that was told to end is killed, s."""

COMMAND = python("-m", "fedsim.studies.worker_process")
"""Command of a worker; Python's path comes with each task."""

BYTES_PER_JOB = 10**9
"""Free memory for each concurrent run."""

MEMINFO = Path("/proc/meminfo")
"""File with the memory of a Linux machine."""

Message = Mapping[str, Any]


def _how_it_ended(status: int) -> str:
    if status >= 0:
        return f"its process ended with status {status}"
    ending = f"its process was ended by {signal.Signals(-status).name}"
    if status == -signal.SIGKILL:
        ending += ", perhaps for want of memory: do fewer runs at once"
    return ending


def default_jobs(runs: int) -> int:
    """Return the default number of concurrent runs: one for each core, as far as there is memory."""
    return max(1, min(num_usable_cores(), runs, _free_memory() // BYTES_PER_JOB))


def _free_memory() -> int:
    """Return the available memory, or all memory if the system does not tell, bytes."""
    try:
        lines = dict(line.split(":") for line in MEMINFO.read_text().splitlines())
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


Tell = Callable[[Message], None]
"""Called with messages about rounds."""


class Worker(Protocol):
    """Does tasks, one after the other."""

    def do(self, task: Message, tell: Tell) -> Message:
        """Do a task, and return its last message: ``{"ended": ...}`` tells how the worker ended before."""

    def end(self) -> None:
        """Tell it to end at once; may be called from any thread."""

    def close(self) -> None:
        """Wait for its end, and free its resources."""


class Process:
    """A worker that is a process of this machine."""

    def __init__(self) -> None:
        # A session of its own: Ctrl-C is for this process, which ends the others.
        self._process = subprocess.Popen(  # noqa: S603
            COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=variables(),
        )

    def do(self, task: Message, tell: Tell) -> Message:
        """Do a task, or tell how the process ended before."""
        process = self._process
        assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018
        with suppress(OSError):  # it has ended
            process.stdin.write(json.dumps(task) + "\n")
            process.stdin.flush()
        for line in process.stdout:
            message: Message = json.loads(line)
            if "round" not in message:
                return message
            tell(message)
        return {"ended": _how_it_ended(process.wait())}

    def end(self) -> None:
        """Terminate it."""
        self._process.terminate()

    def close(self) -> None:
        """Wait for its end, and kill it if that takes too long."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(SHUTDOWN_TIMEOUT_S)
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                pipe.close()  # type: ignore[union-attr]


class WorkerPool:
    """Workers that do tasks, as a context that ends them when it is left.

    A worker that ends in the middle of a task takes only that task with it.
    """

    def __init__(
        self, tasks: Sequence[Mapping[str, Any]], jobs: int, start: Callable[[], Worker] = Process
    ) -> None:
        self._left = deque((number, {**task, "wait": False}) for number, task in enumerate(tasks))
        self._messages = queue.SimpleQueue[tuple[int, Message]]()
        self._start = start
        self._workers: list[Worker] = []
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
        for worker in self._workers:
            worker.end()
        for thread in self._threads:
            thread.join(SHUTDOWN_TIMEOUT_S)
        for worker in self._workers:
            worker.close()
        for thread in self._threads:
            thread.join()

    def messages(self) -> Iterator[tuple[int, Message]]:
        """Yield messages with the numbers of their tasks, until all tasks have ended.

        Of a task under way that is its ``round``; of one that has ended, either whether it is ``finite`` or
        why it has ``failed``.
        """
        ended = 0
        while ended < self._num_tasks:
            number, message = self._messages.get()
            ended += "round" not in message
            yield number, message

    def _work(self) -> None:
        worker = None
        while True:
            try:
                number, task = self._left.popleft()
            except IndexError:
                return
            try:
                worker = worker or self._started()
            except OSError as error:  # the machine lacks memory, or has too many processes
                self._messages.put((number, {"failed": f"its process could not be started: {error}"}))
                continue
            if worker is None:
                return
            last = worker.do(task, partial(self._tell, number))
            if "ended" in last:
                last, worker = {"failed": last["ended"]}, None
            if "busy" in last:  # another study does it: the others first
                self._left.append((number, {**task, "wait": True}))
            else:
                self._messages.put((number, last))

    def _tell(self, number: int, message: Message) -> None:
        self._messages.put((number, message))

    def _started(self) -> Worker | None:
        with self._lock:
            if not self._is_open:
                return None
            worker = self._start()
            self._workers.append(worker)
            return worker
