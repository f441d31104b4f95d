"""``fedsim join``."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from threading import Thread
from typing import Any

from fedsim.bus.http.access import ClientRanges
from fedsim.cli.console import note
from fedsim.processes.addresses_and_tls import client_tls, server_url
from fedsim.processes.client import ClientProcess


def join(url: str, clients: str, ca: Path | None, quiet: bool, while_fed: bool, **settings: Any) -> None:
    """Host clients until the run is over; ``settings`` are the rest of a :class:`ClientProcess`."""
    process = ClientProcess(
        url=server_url(url),
        clients=ClientRanges.parse(clients),
        tls=client_tls(ca),
        tell=(lambda line: None) if quiet else note,
        **settings,
    )
    if while_fed:
        Thread(target=_end_with_input, daemon=True).start()
    process()


def _end_with_input() -> None:
    """Terminate this process when its standard input, a pipe that nobody writes into, ends."""
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
