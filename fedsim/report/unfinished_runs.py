"""Folders of runs that have not come to their end, and are locked while a process is at work there.

``state.json`` says how far such a run has come, and holds a summary of that, in the form of ``summary.json``.
When ``summary.json`` is there, the run has ended.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any, TypeAlias

from fedsim import __version__
from fedsim.durable import PART, sync, telling
from fedsim.errors import FileError, OutputError
from fedsim.plugins import name_of
from fedsim.report import atomic_folder
from fedsim.report.atomic_folder import MARK, MEND, STATE, write_file
from fedsim.report.provenance import Bus, library_version
from fedsim.report.read_results import read_object, to_json
from fedsim.scenario.build import Plan

_NEEDED = "status", "fedsim", "libraries", "started_at", "wall_s", "summary", "checkpoint", "has_checkpoints"

FORK = "fork.json"
"""The file that marks a fork: where its past comes from."""

RUNNING, INTERRUPTED, FAILED = "running", "interrupted", "failed"


@dataclass(frozen=True)
class Beginning:
    """When a run began, for run.json alone, never for a result.

    Attributes:
        at: Date and time.
        before_s: Real time that passed before this process went on with it, s.
    """

    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    before_s: float = 0.0
    _since_s: float = field(default_factory=perf_counter)

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Beginning:
        """Return when a run began that goes on."""
        return cls(datetime.fromisoformat(state["started_at"]), state["wall_s"])

    def passed_s(self) -> float:
        """Return the real time that the run has taken, s."""
        return self.before_s + perf_counter() - self._since_s


def state_of(plan: Plan, began: Beginning, *, has_checkpoints: bool, bus: Bus = "memory") -> dict[str, Any]:
    """Return what ``state.json`` says when a process begins with a run, or goes on with it."""
    return {
        "bus": bus,
        "status": RUNNING,
        "fedsim": __version__,
        "process": os.getpid(),
        "libraries": {name: library_version(name) for name in ("torch", "numpy")},
        "checkpoint": plan.checkpoint.model_dump(mode="json"),
        "trackers": [
            {"name": name_of(one), "params": one.config.model_dump(mode="json", exclude_unset=True)}
            for one in plan.trackers
        ],
        "has_checkpoints": has_checkpoints,
        "started_at": began.at.isoformat(timespec="seconds"),
        "rounds": plan.parts.rounds,
        "wall_s": began.before_s,
        "summary": None,
    }


class UnfinishedRun:
    """The folder of a run on which this process is at work.

    Attributes:
        path: The folder.
        is_worth_keeping: Whether the folder stays if the run ends before its time.
    """

    def __init__(self, path: Path, place: Path, state: Mapping[str, Any]) -> None:
        self.path = path
        self.is_worth_keeping = False
        self._place = place
        self._state = dict(state)

    def tell(self, **state: Any) -> None:
        """Say in ``state.json`` how far the run has come."""
        self._state |= state
        write_file(self.path / STATE, to_json(self._state), place=self._place)


def is_unfinished(folder: Path) -> bool:
    """Whether a folder holds a run that has not come to its end."""
    return (folder / STATE).is_file() and not (folder / MARK).is_file()


def read_state(folder: Path) -> dict[str, Any]:
    """Return what ``state.json`` says; ``status`` is interrupted where its process has gone."""
    state = read_object(folder / STATE, _NEEDED)
    if state["status"] == RUNNING and not is_at_work(folder):
        state["status"] = INTERRUPTED  # its process has gone
    return state


def check_resumable(folder: Path) -> dict[str, Any]:
    """Return what ``state.json`` says of a run that can go on in this process.

    Raises:
        OutputError: It cannot.
    """
    if (folder / MARK).is_file():
        raise OutputError(f"the run in {folder} has come to its end: there is nothing left to resume")
    if not is_unfinished(folder):
        raise OutputError(f"{folder} holds no unfinished run: name a folder in which is {STATE}")
    state = read_state(folder)
    if state["status"] == RUNNING:
        raise _at_work(folder)
    check_not_over_sockets(folder, state)
    if (why := why_not_resumable(state)) is not None:
        raise OutputError(f"the run in {folder} cannot be resumed, {why}: begin it anew")
    return state


def check_not_over_sockets(folder: Path, state: Mapping[str, Any]) -> None:
    """Check that a run that has not come to its end was no run over sockets; an OutputError says so."""
    if state.get("bus", "memory") != "memory":
        raise OutputError(
            f"the run in {folder} is one over sockets: its server goes on with it when it is started again "
            "by the command with which it was begun ('fedsim serve')"
        )


def why_not_resumable(state: Mapping[str, Any]) -> str | None:
    """Return why a run whose state this is cannot go on in this process; None if it can."""
    if not state["has_checkpoints"]:
        return (
            "since it keeps no checkpoints (--bus http, --verify, [[edge]], run.checkpoint.keep = 0, or a "
            "finished run over sockets)"
        )
    for name, was in {"fedsim": state["fedsim"], **state["libraries"]}.items():
        if (now := library_version(name)) != was:
            return f"since it was begun with {name} {was}, and {name} {now} may give other bits"
    return None


def is_at_work(folder: Path) -> bool:
    """Whether a process is at work on the run of a folder."""
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        pass
    finally:
        os.close(lock)
    return False


@contextmanager
def unfinished(
    folder: Path,
    state: Mapping[str, Any],
    *,
    force: bool = False,
    goes_on: bool = False,
    at_end: bool = False,
) -> Iterator[UnfinishedRun]:
    """Yield the folder of a run, which is there from now on, and locked.

    If the block ends without an exception, it has written ``summary.json``. Otherwise the folder stays if it
    is worth keeping; if not, it is removed, and what it has replaced is put back.

    Args:
        folder: The folder.
        state: What ``state.json`` says at first, or until a run that is continued says more.
        force: Whether another run may be replaced.
        goes_on: Whether the run that is there is continued.
        at_end: Whether the folder takes its place only in the end, and what is there stays until then.

    Raises:
        OutputError: Another process is at work there, or the place holds something else.
    """
    path = folder.resolve()
    with _reopened(path) if goes_on else _begun(path, folder, state, force, at_end) as (here, restore):
        run = UnfinishedRun(here, folder, state)
        try:
            yield run
            with telling(folder, MEND):
                for file in (*here.glob(f"*{PART}"), here / STATE):
                    file.unlink(missing_ok=True)
                sync(here)
                if at_end:
                    atomic_folder.check_folder(path, force=force)
                    atomic_folder.publish(here, path)
                sync(path.parent)
        except BaseException as error:
            if (run.is_worth_keeping and not at_end) or goes_on:
                status = FAILED if isinstance(error, Exception) else INTERRUPTED
                with suppress(Exception):  # the folder says what it said before
                    run.tell(status=status, reason=str(error))
                if isinstance(error, Exception) and not isinstance(error, FileError):
                    error.add_note(f"what there is of the run is in {path}")
                elif state.get("bus", "memory") != "memory":
                    error.add_note(f"a server that is started again goes on with the run in {path}")
                else:
                    error.add_note(f"the run can be resumed in {path}")
            else:
                restore()
            raise


Restore: TypeAlias = Callable[[], object]
"""Puts back what stood in the place of a run before, and removes the run."""


@contextmanager
def _begun(
    path: Path, place: Path, state: Mapping[str, Any], force: bool, at_end: bool
) -> Iterator[tuple[Path, Restore]]:
    """Make the folder, under a lock that lasts as long as the block."""
    with atomic_folder.hidden_beside(path) as hidden, ExitStack() as stack:
        UnfinishedRun(hidden, place, state).tell()  # nobody takes a folder for a free place that has this
        if at_end:
            yield hidden, lambda: None
            return
        with telling(place, MEND):
            was_free = atomic_folder.is_free(path)
            atomic_folder.check_folder(path, force=force)
            if was_free:
                try:
                    hidden.rename(path)
                except OSError as error:
                    if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                        raise
                    raise _at_work(place) from None  # it was there first
            else:
                # What is replaced stays locked too, so that nobody sweeps it away before the end.
                stack.callback(os.close, _locked(path))
                atomic_folder.publish(hidden, path)

        def restore() -> None:
            if was_free:
                shutil.rmtree(path, ignore_errors=True)
            elif hidden.exists():
                atomic_folder.publish(hidden, path)

        try:
            with telling(place, MEND):
                sync(path.parent)
        except BaseException:
            restore()
            raise
        yield path, restore


@contextmanager
def _reopened(path: Path) -> Iterator[tuple[Path, Restore]]:
    """Lock the folder of a run that goes on, as long as the block lasts."""
    lock = _locked(path)
    try:
        if not is_unfinished(path):
            raise OutputError(f"another process has finished the run in {path} meanwhile")
        yield path, lambda: None
    finally:
        os.close(lock)


def _locked(folder: Path) -> int:
    """Return a lock on a folder: the number of an open file."""
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise _at_work(folder) from None
    except OSError:  # a file system without locks
        pass
    return lock


def _at_work(folder: Path) -> OutputError:
    return OutputError(
        f"another process is at work on the run in {folder}: wait for it, end it, or choose another place"
    )
