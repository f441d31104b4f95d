"""Processes that examine scenarios; each can be killed, and has a time limit for each scenario."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, Self

from fedsim.engine.worker_state import pin_thread
from fedsim.fuzz.examine import Verdict, examine
from fedsim.fuzz.random_scenarios import RandomScenario

MAX_S = 60.0
"""Real time for the runs of a scenario, which take a second or a few."""

IN_MEMORY = Path("/dev/shm")  # noqa: S108
"""Where run folders are written if the system has it: on a disk a run waits for each file."""

FORKS: Any = multiprocessing.get_context("forkserver")  # torch's threads do not survive a plain fork
FORKS.set_forkserver_preload(["fedsim.fuzz.examine"])


class WorkerProcesses:
    """Some processes, as a context that ends them.

    Args:
        number: How many examine scenarios at once.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._idle: list[_Worker] = []

    def __enter__(self) -> Self:
        self._place = TemporaryDirectory(prefix="fedsim-fuzz-", dir=IN_MEMORY if IN_MEMORY.is_dir() else None)
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._idle:
            worker.kill()
        self._place.cleanup()  # also of what processes left that were killed

    def verdicts(self, scenarios: Iterable[RandomScenario]) -> Iterator[tuple[RandomScenario, Verdict]]:
        """Yield each scenario with its verdict, as they come."""
        left, busy = iter(scenarios), dict[_Worker, tuple[RandomScenario, float]]()
        try:
            while True:
                while len(busy) < self._number and (scenario := next(left, None)) is not None:
                    worker = self._idle.pop() if self._idle else _Worker(self._place.name)
                    worker.pipe.send(scenario)
                    busy[worker] = scenario, monotonic() + MAX_S
                if not busy:
                    return
                first_s = min(ends_s for _, ends_s in busy.values())
                ready = wait([worker.pipe for worker in busy], max(0.0, first_s - monotonic()))
                for worker, (scenario, ends_s) in list(busy.items()):
                    if worker.pipe in ready or monotonic() >= ends_s:
                        del busy[worker]
                        yield scenario, self._verdict(worker, is_ready=worker.pipe in ready)
        finally:
            for worker in busy:
                worker.kill()

    def _verdict(self, worker: _Worker, *, is_ready: bool) -> Verdict:
        """Return what a worker has found; kill it if it has found nothing in its time."""
        try:
            verdict: Verdict | None = worker.pipe.recv() if is_ready else None
        except EOFError:
            worker.kill()
            return Verdict("failed", (f"its process ended with status {worker.process.exitcode}",))
        if verdict is None:
            worker.kill()
            return Verdict("failed", (f"the runs took more than {MAX_S:g} s of real time",))
        self._idle.append(worker)
        return verdict


class _Worker:
    """A process, and the pipe to it."""

    def __init__(self, place: str) -> None:
        self.pipe, its = FORKS.Pipe()
        self.process = FORKS.Process(target=_serve, args=(its, place), daemon=True)
        self.process.start()
        its.close()

    def kill(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def _serve(pipe: Connection, place: str) -> None:
    """Examine the scenarios that come through a pipe, in folders below a place, until it is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that asks hears Ctrl-C
    pin_thread()
    while True:
        try:
            scenario = pipe.recv()
        except EOFError:
            return
        with TemporaryDirectory(dir=place) as folder:
            pipe.send(examine(scenario, Path(folder)))
