"""``fedsim serve``, and ``fedsim run --bus http``: the server of a run over sockets."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

from fedsim.bus.http.access import Access, is_loopback
from fedsim.cli.console import note
from fedsim.cli.run import Options, planned, run_and_show
from fedsim.errors import UserError
from fedsim.processes.addresses_and_tls import Address, server_tls
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
    tls = server_tls(tls_cert, tls_key)
    if not is_loopback(listen.host) and not insecure and (tls is None or tokens is None):
        raise UserError(
            f"{listen} can be reached from other machines: give --tls-cert, --tls-key and --tokens, or "
            "--insecure if you want everybody there to see and to join this run"
        )
    access = Access.open() if tokens is None else Access.from_file(tokens)
    plan, folder = planned(options, "http")
    clients = len(plan.parts.fleet)

    def listening(here: Address) -> None:
        scheme = "http" if tls is None else "https"
        note(f"listening at {scheme}://{here}, for {clients} clients: 0-{clients - 1}")
        _note_unused(plan)

    perform = ServerProcess(
        plan=plan,
        address=listen,
        tls=tls,
        access=access,
        wait_s=wait_s,
        listening=listening,
        tell=None if options["quiet"] else note,
    )
    run_and_show(plan, folder, perform, "http", options)


def run(processes: int, **options: Unpack[Options]) -> None:
    """Run a scenario as the server of client processes that it starts itself."""
    plan, folder = planned(options, "http")
    perform = ServerProcess.with_children(plan, processes)
    _note_unused(plan)
    run_and_show(plan, folder, perform, "http", options)


def _note_unused(plan: Plan) -> None:
    if (remark := unused(plan.parts)) is not None:
        note(f"note: {remark}")
