"""Keeping two studies from doing the same run, or writing the same file, at the same time.

A lock belongs to the block that has it: to other processes and to other threads it is locked.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from zlib import crc32

from fedsim.durable import telling
from fedsim.report.atomic_folder import MEND

LOCKS = ".fedsim-locks"
"""A file beside them with one lockable byte for each; not on Linux, the prefix of one file for each."""

HAS_BYTE_LOCKS = sys.platform == "linux"
"""Whether a file descriptor can lock a single byte; elsewhere it locks the whole file."""


@contextmanager
def locked(place: Path, *, wait: bool) -> Iterator[bool]:
    """Lock a folder or a file during the block; yield whether it could be locked."""
    byte = crc32(place.name.encode())
    locks = place.parent / (LOCKS if HAS_BYTE_LOCKS else f"{LOCKS}-{byte:08x}")
    with telling(locks, MEND):
        number = os.open(locks, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            _lock(number, byte, wait)
            is_mine = True
        except BlockingIOError:
            is_mine = False
        except OSError:  # a file system without locks: then the last to end wins
            is_mine = True
        yield is_mine
    finally:
        os.close(number)


def _lock(file: int, byte: int, wait: bool) -> None:
    if not HAS_BYTE_LOCKS:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    # The older locks of POSIX are the process's: closing the file anywhere in it would let go of all.
    how = fcntl.F_OFD_SETLKW if wait else fcntl.F_OFD_SETLK
    fcntl.fcntl(file, how, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0))
