"""Keeping two studies of one folder from doing the same run, or writing the same file, at the same time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from zlib import crc32

LOCKS = ".fedsim-locks"
"""A file beside them, of which each has a byte to lock."""


@contextmanager
def locked(place: Path, *, wait: bool) -> Iterator[bool]:
    """Keep other studies from a run's folder, or a file, at the same time; yield whether that is so.

    Args:
        place: The folder or the file.
        wait: Whether to wait while another study has it.
    """
    number = os.open(place.parent / LOCKS, os.O_RDWR | os.O_CREAT, 0o666)
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
