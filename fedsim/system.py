"""What fedsim asks of the operating system, where systems differ."""

import os
import sys

from fedsim.errors import UserError


def check_system() -> None:
    """Refuse a system without POSIX file locks and signals."""
    if sys.platform == "win32":
        raise UserError(
            "fedsim does not run on Windows itself, which has no POSIX file locks and signals: run it in the "
            "Windows Subsystem for Linux (WSL 2), or in a container"
        )


def num_usable_cores() -> int:
    """Return how many cores this process may use; all of the machine's where the system does not say."""
    if hasattr(os, "sched_getaffinity"):  # Linux has it, macOS does not
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
