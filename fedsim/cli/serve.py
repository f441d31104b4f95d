"""``fedsim serve``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from fedsim.cli import options, plans
from fedsim.cli.console import note
from fedsim.cli.outcome import check_finite, show
from fedsim.cli.progress import watching
from fedsim.cli.sockets import PASSED, Address, address, seconds, server_tls
from fedsim.errors import UserError


@click.command("serve")
@options.scenario
@options.algorithm
@options.seed
@options.out
@click.option(
    "--listen",
    default="127.0.0.1:8470",
    show_default=True,
    metavar="HOST:PORT",
    callback=address,
    help="Where to listen.",
)
@click.option("--tls-cert", type=click.Path(path_type=Path), metavar="FILE", help="Certificate, in PEM.")
@click.option("--tls-key", type=click.Path(path_type=Path), metavar="FILE", help="Its private key, in PEM.")
@click.option(
    "--tokens",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Ask for tokens; 'fedsim token new' writes them.",
)
@click.option(
    "--insecure", is_flag=True, help="Listen beyond this machine without TLS or without tokens all the same."
)
@click.option(
    "--wait",
    "wait_s",
    metavar="DURATION",
    callback=seconds,
    help="Begin after so long with the clients that are there, such as '5 min'.  [default: wait for all]",
)
@options.output
def command(
    scenario_file: Path,
    overrides: Sequence[str],
    algorithm: str | None,
    seed: int | None,
    out: Path | None,
    listen: Address,
    tls_cert: Path | None,
    tls_key: Path | None,
    tokens: Path | None,
    insecure: bool,
    wait_s: float | None,
    force: bool,
    verify: bool,
    quiet: bool,
) -> None:
    """Run a scenario over real sockets, in real time.

    Clients are hosted by processes that 'fedsim join' starts, on this machine or others. The run begins when
    all clients that can take part are there, and leaves the same folder as 'fedsim run'. Speeds, links and
    presence of the scenario's devices play no part: the processes have their own.
    """
    from fedsim.bus.http.access import Access
    from fedsim.report.folder import check_folders

    tls = server_tls(tls_cert, tls_key)
    if not listen.is_loopback and not insecure and (tls is None or tokens is None):
        raise UserError(
            f"{listen} can be reached from other machines: give --tls-cert, --tls-key and --tokens, or "
            "--insecure if you want everybody there to see and to join this run"
        )
    access = Access.open() if tokens is None else Access.from_file(tokens)
    scenario = plans.load(scenario_file, overrides, algorithm=algorithm, seed=seed)
    name, folder = plans.place(scenario, out)
    check_folders([folder], force=force)
    from fedsim.cli.serving import OverSockets
    from fedsim.report.record import record
    from fedsim.runtime.serve import unused

    plan = plans.plan(scenario, scenario_file, verify=verify)
    clients = len(plan.parts.fleet)

    def listening(here: Address) -> None:
        scheme = "http" if tls is None else "https"
        note(f"listening at {scheme}://{here}, for {clients} clients: 0-{clients - 1}")
        if (remark := unused(plan.parts)) is not None:
            note(f"note: {remark}")

    with watching(f"{plan.name} {name}", plan.parts.rounds, quiet=quiet, passed=PASSED) as watch:
        perform = OverSockets(
            plan=plan,
            address=listen,
            tls=tls,
            access=access,
            wait_s=wait_s,
            listening=listening,
            tell=None if quiet else note,
        )
        recorded = record(plan, folder, force=force, watch=watch, perform=perform, bus="http")
    show(recorded, folder, passed=PASSED)
    check_finite({"": recorded.result.non_finite})
