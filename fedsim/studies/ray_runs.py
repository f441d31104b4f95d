"""Whole runs of a study on a Ray cluster, each as one task on some node.

A run is recorded into a temporary folder of its node, and comes back as the pieces of its files. What a lost
node was doing is done again by another. Locks, and whether a run is there already, are this process's matter,
as are trackers, who are told of a run when it has ended.
"""

from __future__ import annotations

import platform
import shutil
import sys
import tempfile
import threading
import tomllib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from fedsim import __version__
from fedsim.engine.cluster.connection import AUTO, Connection
from fedsim.engine.cluster.numeric_fingerprint import PIN, differences, versions
from fedsim.errors import RunError
from fedsim.report.atomic_folder import staged
from fedsim.report.places import holds_scenario, holds_unfinished
from fedsim.report.tracking import track
from fedsim.scenario import load_scenario
from fedsim.scenario.build import with_own_root
from fedsim.studies.worker import Task, done, failure_text, record_task, teller
from fedsim.studies.worker_pool import Message, Tell

PIECE_BYTES = 8 << 20
"""Maximum size of a piece of a file, bytes."""

PIECES_AHEAD = 8
"""Maximum number of pieces that wait to be fetched."""

MAX_LOST_NODES = 5
"""Nodes that a run may lose before it fails."""

CHECK_S = 2.0
"""Interval of checks whether the cluster is there, s."""


_GIVEN_UP = "it was given up"


@contextmanager
def ray_workers() -> Iterator[tuple[Callable[[], RayWorker], int]]:
    """Join a Ray cluster; yield what starts a worker of it, and its number of free CPUs, at least 1."""
    with closing(Connection(AUTO)) as connection:
        num_cpus = int(connection.ray.available_resources().get("CPU", 0.0))
        yield partial(RayWorker, connection), max(1, num_cpus)


class RayWorker:
    """A worker that does runs on the cluster, one after the other."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._is_over = threading.Event()

    def do(self, task: Message, tell: Tell) -> Message:
        """Do a run on some node, and publish its folder here."""
        folder = Path(task["folder"])

        def leave() -> None:
            self._fetch({**task, "trackers": []}, folder, tell)
            scenario = load_scenario(tomllib.loads(task["scenario"]), {"run.trackers": task["trackers"]})
            for tracker in scenario.run.trackers:
                track(folder, tracker.make())

        while "busy" in (last := done(dict(task), leave, wait=False)) and task["wait"]:
            # Waiting for the lock itself would go on after this worker was told to end.
            if self._is_over.wait(CHECK_S):
                return {"failed": _GIVEN_UP}
        return last

    def end(self) -> None:
        """Give up the current run."""
        self._is_over.set()

    def close(self) -> None:
        """No-op."""

    def _fetch(self, task: Task, folder: Path, tell: Tell) -> None:
        """Repeat a run until a node finishes it, and publish its folder."""
        written = task["scenario"]
        force = task["force"] or holds_scenario(folder, written) or holds_unfinished(folder, written)
        for _ in range(MAX_LOST_NODES):
            # What came of a run that was lost goes with its hidden folder.
            with suppress(_LostError), staged(folder, force=force) as hidden:
                self._attempt(task, hidden, tell)
                return
        raise RunError(f"{MAX_LOST_NODES} nodes were lost that did it, perhaps for want of memory")

    def _attempt(self, task: Task, hidden: Path, tell: Tell) -> None:
        ray = self._connection.ray
        gpus = 1 if tomllib.loads(task["scenario"])["engine"]["device"] == "cuda" else 0
        remote = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=0, scheduling_strategy="SPREAD")(perform)
        stream = remote.options(
            num_returns="streaming", _generator_backpressure_num_objects=PIECES_AHEAD
        ).remote(dict(task))
        try:
            for message in self._messages(stream):
                if "piece" in message:
                    with (hidden / message["name"]).open("ab") as file:
                        file.write(message["piece"])
                elif "folder" in message:
                    (hidden / message["folder"]).mkdir()
                elif "round" in message:
                    tell(message)
                elif "greeting" in message:
                    _check(message["greeting"])
                elif "failed" in message:
                    raise RunError(message["failed"])
                else:
                    return
        finally:
            with suppress(Exception):  # it has ended
                ray.cancel(stream, force=True)
        raise _LostError

    def _messages(self, stream: Any) -> Iterator[Task]:
        """Yield the messages of a run while the cluster is there and the run is wanted."""
        ray = self._connection.ray
        while True:
            ready, _ = ray.wait([stream], timeout=CHECK_S)
            if self._is_over.is_set():
                raise RunError(_GIVEN_UP)
            if not ready:
                self._connection.check()
                continue
            try:
                message: Task = ray.get(next(stream))
            except StopIteration:
                return
            except ray.exceptions.RayTaskError as error:
                raise RunError(f"a node cannot do it: {error.cause}") from None
            except ray.exceptions.RayError:
                raise _LostError from None
            yield message


class _LostError(Exception):
    """The node that did a run was lost."""


def _check(greeting: Message) -> None:
    """Check that a node gives the same results as this process."""
    host = greeting["host"]
    if greeting["fedsim"] != __version__:
        raise RunError(
            f"{host} runs fedsim {greeting['fedsim']}, this is fedsim {__version__}: install the same "
            "version on every node"
        )
    if differing := differences(versions(), greeting["numbers"]):
        raise RunError(f"{host} computes other numbers: {', '.join(differing)}. To have the same, {PIN}")


def perform(task: Task) -> Iterator[Task]:
    """Do a run on a node, and yield messages: rounds, then the pieces of its files."""
    sys.path += [place for place in task["path"] if place not in sys.path]
    yield {"greeting": {"host": platform.node(), "fedsim": __version__, "numbers": versions()}}
    parent = Path(tempfile.mkdtemp(prefix="fedsim-run-"))
    messages = SimpleQueue[Task]()
    thread = threading.Thread(target=_record, args=(task, parent / "run", messages.put), daemon=True)
    thread.start()
    try:
        while "round" in (message := messages.get()):
            yield message
        if "failed" not in message:
            yield from _pieces(parent / "run")
        yield message
    finally:
        shutil.rmtree(parent, ignore_errors=True)


def _record(task: Task, folder: Path, tell: Tell) -> None:
    try:
        record_task(task, folder, teller(tell), with_own_root)
        tell({"ended": True})
    except BaseException as error:
        tell({"failed": failure_text(error)})


def _pieces(folder: Path) -> Iterator[Task]:
    """Yield the folders in a folder and the pieces of its files, a folder before what is in it."""
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_dir():
            yield {"folder": name}
            continue
        with path.open("rb") as file:
            piece = file.read(PIECE_BYTES)
            yield {"name": name, "piece": piece}
            while piece := file.read(PIECE_BYTES):
                yield {"name": name, "piece": piece}
