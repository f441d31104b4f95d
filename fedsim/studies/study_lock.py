"""Keeping two studies from doing the same run, or writing the same file, at the same time.

A lock belongs to the block that has it: to other processes and to other threads it is locked.
"""

from __future__ import annotations

import fcntl
import os
import struct
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
    """Keep others from a run's folder, or a file, in this block; yield whether that is so.

    Args:
        place: The folder or the file.
        wait: Whether to wait while somebody else has it.

    Raises:
        FileError: The file of the locks cannot be opened.
    """
    locks = place.parent / LOCKS
    with telling(locks, MEND):
        number = os.open(locks, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        # The older locks of POSIX are the process's: closing the file anywhere in it would let go of all.
        how = fcntl.F_OFD_SETLKW if wait else fcntl.F_OFD_SETLK
        one_byte = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, crc32(place.name.encode()), 1, 0)
        try:
            fcntl.fcntl(number, how, one_byte)
            is_mine = True
        except BlockingIOError:
            is_mine = False
        except OSError:  # a file system without locks: then the last to end wins
            is_mine = True
        yield is_mine
    finally:
        os.close(number)
