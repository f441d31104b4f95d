"""Keeping two processes from doing the same run, or writing the same file, of a study at the same time.

What is locked is locked for other processes. Within a process nobody waits, and the first who lets go of
something in a folder lets go of all that the process has locked there: so no two blocks overlap.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from zlib import crc32

from fedsim.durable import telling
from fedsim.report.atomic_folder import MEND

LOCKS = ".fedsim-locks"
"""A file beside them, of which each has a byte to lock."""


@contextmanager
def locked(place: Path, *, wait: bool) -> Iterator[bool]:
    """Keep other processes from a run's folder, or a file, in this block; yield whether that is so.

    Args:
        place: The folder or the file.
        wait: Whether to wait while another process has it.

    Raises:
        FileError: The file of the locks cannot be opened.
    """
    locks = place.parent / LOCKS
    with telling(locks, MEND):
        number = os.open(locks, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        how = fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB
        try:
            fcntl.lockf(number, how, 1, crc32(place.name.encode()))
            is_mine = True
        except BlockingIOError:
            is_mine = False
        except OSError:  # a file system without locks: then the last to end wins
            is_mine = True
        yield is_mine
    finally:
        os.close(number)
