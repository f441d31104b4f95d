"""Folders of runs that have not come to their end, and are locked while a process is at work there.

``state.json`` says how far such a run has come, and holds a summary of that, in the form of ``summary.json``.
When ``summary.json`` is there, the run has ended.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fedsim.durable import PART, sync, telling, write
from fedsim.errors import FileError, OutputError
from fedsim.report import atomic_folder
from fedsim.report.atomic_folder import MARK, MEND, STATE
from fedsim.report.provenance import library_version
from fedsim.report.read_results import read_object, to_json

RUNNING, INTERRUPTED, FAILED = "running", "interrupted", "failed"


class UnfinishedRun:
    """The folder of a run on which this process is at work.

    Attributes:
        path: The folder.
        is_worth_keeping: Whether the folder stays if the run ends before its time.
    """

    def __init__(self, path: Path, place: Path, state: dict[str, Any]) -> None:
        self.path = path
        self.is_worth_keeping = False
        self._place = place
        self._state = dict(state)

    def tell(self, **state: Any) -> None:
        """Say in ``state.json`` how far the run has come."""
        self._state |= state
        write_state(self.path, self._state, self._place)


def write_state(folder: Path, state: dict[str, Any], place: Path) -> None:
    """Write ``state.json``; errors name the place that it belongs to."""
    write(folder / STATE, to_json(state), mend=MEND, private=False, place=place)


def is_unfinished(folder: Path) -> bool:
    """Whether a folder holds a run that has not come to its end."""
    return (folder / STATE).is_file() and not (folder / MARK).is_file()


def read_state(folder: Path) -> dict[str, Any]:
    """Return what ``state.json`` says; ``status`` is interrupted where its process has gone."""
    state = read_object(
        folder / STATE, ("status", "fedsim", "bus", "libraries", "wall_s", "summary", "checkpoint")
    )
    if state["status"] == RUNNING and not is_at_work(folder):
        state["status"] = INTERRUPTED
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
    if state["bus"] != "memory":
        raise OutputError(f"the run in {folder} is over sockets: of those none can be resumed, so begin anew")
    for name, was in {"fedsim": state["fedsim"], **state["libraries"]}.items():
        if (now := library_version(name)) != was:
            raise OutputError(
                f"the run in {folder} was begun with {name} {was}, and this is {name} {now}, which may give "
                "other bits: go on with the old one, or begin anew"
            )
    return state


def is_at_work(folder: Path) -> bool:
    """Whether a process is at work on the run of a folder."""
    try:
        os.close(_locked(folder))
    except OutputError:
        return True
    return False


@contextmanager
def unfinished(folder: Path, state: dict[str, Any], *, force: bool, goes_on: bool) -> Iterator[UnfinishedRun]:
    """Yield the folder of a run, which is there from now on, and locked.

    If the block ends without an exception, it has written ``summary.json``. Otherwise the folder stays if it
    is worth keeping; if not, it is removed, and what it has replaced is put back.

    Args:
        folder: The folder.
        state: What ``state.json`` says at first.
        force: Whether another run may be replaced.
        goes_on: Whether the run that is there is continued.

    Raises:
        OutputError: Another process is at work there, or the place holds something else.
    """
    path = folder.resolve()
    with _reopened(path) if goes_on else _begun(path, folder, state, force) as replaced:
        run = UnfinishedRun(path, folder, state)
        try:
            run.tell()
            yield run
            with telling(folder, MEND):
                for file in (*path.glob(f"*{PART}"), path / STATE):
                    file.unlink(missing_ok=True)
                sync(path)
        except BaseException as error:
            if run.is_worth_keeping or goes_on:
                with suppress(Exception):  # the folder says what it said before
                    run.tell(
                        status=FAILED if isinstance(error, Exception) else INTERRUPTED, reason=str(error)
                    )
                error.add_note(_what_stays(error, path))
            else:
                replaced.restore()
            raise


def _what_stays(error: BaseException, folder: Path) -> str:
    """Return a note for an error that has ended a run."""
    if isinstance(error, FileError) or not isinstance(error, Exception):
        return f"the run can be resumed in {folder}"
    return f"{folder} has the rounds until the last checkpoint"


class _Replaced:
    """What stood in the place of a run before."""

    def __init__(self, folder: Path, hidden: Path | None) -> None:
        self._folder, self._hidden = folder, hidden

    def restore(self) -> None:
        """Put it back, and remove the run."""
        if self._hidden is not None and self._hidden.exists():
            atomic_folder.publish(self._hidden, self._folder)
        else:
            shutil.rmtree(self._folder, ignore_errors=True)


@contextmanager
def _begun(path: Path, place: Path, state: dict[str, Any], force: bool) -> Iterator[_Replaced]:
    """Make the folder, under a lock that lasts as long as the block."""
    with atomic_folder.hidden_beside(path) as hidden:
        write_state(hidden, state, place)
        with telling(place, MEND):
            atomic_folder.check_folder(path, force=force)
            if is_unfinished(path) and is_at_work(path):
                raise _at_work(place)
            atomic_folder.publish(hidden, path)
        yield _Replaced(path, hidden)


@contextmanager
def _reopened(folder: Path) -> Iterator[_Replaced]:
    """Lock the folder as long as the block lasts."""
    lock = _locked(folder)
    try:
        yield _Replaced(folder, None)
    finally:
        os.close(lock)


def _locked(folder: Path) -> int:
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
