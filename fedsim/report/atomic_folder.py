"""Writing folders and files of results atomically.

A folder is written as a hidden folder beside its place, on the same file system, brought to the disk, and
renamed into place at the very end; single files are written by :func:`fedsim.durable.write`. A crash at any
instant leaves either nothing at the place or what was there before. (Runs mostly take their place at the
beginning: :mod:`fedsim.report.unfinished_runs`.) What a killed process left behind hidden is told from one in
use by its lock, and swept away by the next process that writes to the same parent.

Replacing a folder is one exchange of two names where the file system can do that (Linux's usual ones can).
Elsewhere it takes two renames, and a crash exactly between them leaves the old folder complete under a hidden
name that starts with ``.replaced-by-fedsim-``, which no sweep touches.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from fedsim.durable import create, sync, telling, write
from fedsim.errors import OutputError

MARK = "summary.json"
"""The file that marks the folder of a run."""

STATE = "state.json"
"""The file that marks the folder of a run that has not come to its end."""

MEND = "Choose another place, or make room there"
"""Advice of errors in writing. They reach Python too, so they name no switches."""

_OCCUPIED = "replace it with the option force, or choose another place"

_STAGED = ".fedsim-staged-"
_REPLACED = ".replaced-by-fedsim-"


def is_free(folder: Path) -> bool:
    """Whether a place is unused, or an empty folder."""
    return not any(folder.iterdir()) if folder.is_dir() else not (folder.exists() or folder.is_symlink())


def check_folders(folders: Sequence[Path], *, force: bool) -> None:
    """Check, before any work, that each place for a run folder can be written and loses nothing."""
    for folder in folders:
        with telling(folder, MEND, error=OutputError):
            check_folder(folder.resolve(), force=force)
            _probe(folder.resolve().parent)


def check_files(files: Sequence[Path], *, force: bool) -> None:
    """Check, before any work, that each place for a single file can be written and loses nothing."""
    for file in files:
        with telling(file, MEND, error=OutputError):
            if file.is_dir():
                raise OutputError(f"{file} is a folder, where no file can be: choose another place")
            if file.exists() and not force:
                raise OutputError(f"{file} exists already: {_OCCUPIED}")
            _probe(file.resolve().parent)


@contextmanager
def staged(folder: Path, *, force: bool = False) -> Iterator[Path]:
    """Yield a hidden folder to write into; publish it as ``folder`` when the block ends without an exception.

    Whatever exception ends the block, ``KeyboardInterrupt`` included, the hidden folder is removed, and
    parents that were made for it too.
    """
    folder = folder.resolve()
    with hidden_beside(folder) as hidden:
        yield hidden
        with telling(folder, MEND):
            check_folder(folder, force=force)
            for path in (*sorted(hidden.rglob("*")), hidden):
                sync(path)
            publish(hidden, folder)
            sync(folder.parent)


@contextmanager
def hidden_beside(folder: Path) -> Iterator[Path]:
    """Yield a new, hidden and locked folder beside a place; what is there by its name in the end is removed.

    The lock stays with the folder when it is moved. So are removed parents that were made, if they are empty.
    """
    made: list[Path] = []
    hidden, lock = None, None
    try:
        with telling(folder, MEND):
            _make_parents(folder.parent, made)
            _sweep(folder.parent)
            hidden, lock = _hidden(folder.parent)
        yield hidden
    finally:
        if hidden is not None:
            shutil.rmtree(hidden, ignore_errors=True)
        if lock is not None:
            os.close(lock)
        for parent in made:
            # Only what is empty goes: after a success nothing is.
            with suppress(OSError):
                parent.rmdir()


def write_file(file: Path, *pieces: bytes | memoryview, place: Path | None = None) -> None:
    """Write a file into a folder that exists; a crash leaves the old content, if any, or the new.

    Errors name the place that it belongs to, or itself.
    """
    write(file.resolve(), *pieces, mend=MEND, private=False, place=place)


def new(path: Path, place: Path) -> BinaryIO:
    """Return a new file of results to write into; errors name the place that it belongs to."""
    return create(path, place, MEND)


def check_folder(folder: Path, *, force: bool) -> None:
    """Check that a run folder that is written to this place loses nothing."""
    if is_free(folder):
        return
    if folder.is_dir():
        if not ((folder / MARK).is_file() or (folder / STATE).is_file()):
            raise OutputError(
                f"{folder} is not empty, and is no folder of a run (it holds no {MARK} and no {STATE}), so "
                "not even force replaces it: choose another place"
            )
        if not force:
            what = "a run already" if (folder / MARK).is_file() else "a run that has not come to its end"
            raise OutputError(f"{folder} holds {what}: {_OCCUPIED}")
    else:
        raise OutputError(f"{folder} is not a folder: choose another place")


def _probe(parent: Path) -> None:
    """Check that the nearest existing parent is writable."""
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir():
        raise OutputError(f"{parent} is not a folder, so it can hold no results: choose another place")
    trial = parent / f"{_STAGED}{secrets.token_hex(8)}"
    trial.mkdir()
    with suppress(FileNotFoundError):  # another process has swept it away
        trial.rmdir()


def _make_parents(parent: Path, made: list[Path]) -> None:
    """Make missing parents, and note them, the deepest first."""
    if parent.exists():
        return
    _make_parents(parent.parent, made)
    with suppress(FileExistsError):
        parent.mkdir()
        made.insert(0, parent)


def _hidden(parent: Path) -> tuple[Path, int]:
    while True:
        hidden = parent / f"{_STAGED}{secrets.token_hex(8)}"
        hidden.mkdir()
        # Until it is locked, another process can sweep it away; then another is made.
        with suppress(FileNotFoundError):
            lock = os.open(hidden, os.O_RDONLY)
            with suppress(OSError):  # a file system without locks: then nobody can sweep there either
                fcntl.flock(lock, fcntl.LOCK_EX)
            if hidden.exists():
                return hidden, lock
            os.close(lock)


def _sweep(parent: Path) -> None:
    """Remove unlocked hidden folders, which killed processes have left."""
    for left in sorted(parent.glob(f"{_STAGED}*")):
        with suppress(OSError):
            lock = os.open(left, os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(left)
            finally:
                os.close(lock)


def publish(hidden: Path, folder: Path) -> None:
    """Put a hidden folder into its place; what was there is the hidden folder then."""
    if is_free(folder):
        _rename(hidden, folder)
        return
    if _exchange(hidden, folder):
        return
    aside = folder.parent / f"{_REPLACED}{secrets.token_hex(8)}"
    _rename(folder, aside)
    try:
        _rename(hidden, folder)
    except BaseException:
        _rename(aside, folder)
        raise
    _rename(aside, hidden)


def _rename(old: Path, new: Path) -> None:
    old.rename(new)


def _exchange(left: Path, right: Path) -> bool:
    """Exchange two names in one step; False where the system cannot."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    if renameat2(here, os.fsencode(left), here, os.fsencode(right), ctypes.c_uint(exchange)) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP):
        return False
    raise OSError(number, os.strerror(number), str(right))
