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
from fedsim.errors import UserError
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
    emulate: bool,
    speed_up: float | None,
    **options: Unpack[Options],
) -> None:
    """Run a scenario as the server of processes that join."""
    speed_up = _speed_up(emulate, speed_up)
    plan, folder = planned(options, "http", clients_stay=not emulate)
    perform = ServerProcess(
        plan=plan,
        address=listen,
        tls_cert=tls_cert,
        tls_key=tls_key,
        tokens=tokens,
        insecure=insecure,
        wait_s=wait_s,
        listening=lambda url: _listening(plan, url, emulate),
        tell=None if options["quiet"] else note,
        speed_up=speed_up,
    )
    run_and_show(plan, folder, perform, "http", options, clients_stay=not emulate)


def run(processes: int, emulate: bool, speed_up: float | None, **options: Unpack[Options]) -> None:
    """Run a scenario as the server of client processes that it starts itself."""
    speed_up = _speed_up(emulate, speed_up)
    plan, folder = planned(options, "http", clients_stay=False)
    perform = ServerProcess.with_children(plan, processes, speed_up)
    if not emulate:
        _note_unused(plan)
    run_and_show(plan, folder, perform, "http", options, clients_stay=False)


def _speed_up(emulate: bool, speed_up: float | None) -> float | None:
    """Return the speed of an emulation; None for none."""
    if speed_up is not None and not emulate:
        raise UserError("--speed-up is for emulations: give --emulate too, or leave it out")
    return (speed_up or 1.0) if emulate else None


def _listening(plan: Plan, url: str, emulate: bool) -> None:
    clients = len(plan.parts.fleet)
    note(f"listening at {url}, for {clients} clients: 0-{clients - 1}")
    if not emulate:
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
