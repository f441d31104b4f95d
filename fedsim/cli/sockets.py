"""``fedsim serve``, ``fedsim run --bus http`` and ``fedsim join``: runs over sockets."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from threading import Thread
from typing import Any, Unpack

from fedsim.api import sockets
from fedsim.cli.console import note
from fedsim.cli.run import Options, planned, run_and_show
from fedsim.processes.addresses_and_tls import Address
from fedsim.processes.server import ServerProcess
from fedsim.runtime.sockets.serve import unused
from fedsim.scenario import Plan


def serve(
    listen: Address,
    tls_cert: Path | None,
    tls_key: Path | None,
    tokens: Path | None,
    insecure: bool,
    wait_s: float | None,
    **options: Unpack[Options],
) -> None:
    """Run a scenario as the server of processes that join."""
    plan, folder = planned(options, "http")
    perform = ServerProcess(
        plan=plan,
        address=listen,
        tls_cert=tls_cert,
        tls_key=tls_key,
        tokens=tokens,
        insecure=insecure,
        wait_s=wait_s,
        listening=lambda url: _listening(plan, url),
        tell=None if options["quiet"] else note,
    )
    run_and_show(plan, folder, perform, "http", options)


def run(processes: int, **options: Unpack[Options]) -> None:
    """Run a scenario as the server of client processes that it starts itself."""
    plan, folder = planned(options, "http", clients_stay=False)
    perform = ServerProcess.with_children(plan, processes)
    _note_unused(plan)
    run_and_show(plan, folder, perform, "http", options, clients_stay=False)


def _listening(plan: Plan, url: str) -> None:
    clients = len(plan.parts.fleet)
    note(f"listening at {url}, for {clients} clients: 0-{clients - 1}")
    _note_unused(plan)


def _note_unused(plan: Plan) -> None:
    if (remark := unused(plan.parts)) is not None:
        note(f"note: {remark}")


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
