"""``fedsim join``."""

from __future__ import annotations

import os
import signal
import sys
from threading import Thread
from typing import Any

from fedsim.api import sockets
from fedsim.cli.console import note


def join(*, quiet: bool, while_fed: bool, **settings: Any) -> None:
    """Host clients until the run is over; ``settings`` are those of :func:`fedsim.join`."""
    if while_fed:
        Thread(target=_end_with_input, daemon=True).start()
    sockets.join(**settings, tell=(lambda line: None) if quiet else note)


def _end_with_input() -> None:
    """Terminate this process when its standard input, a pipe that nobody writes into, ends."""
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
