"""``fedsim run``."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from fedsim.cli import options, plans
from fedsim.cli.console import note
from fedsim.cli.outcome import check_finite, show
from fedsim.cli.progress import SIMULATED, watching
from fedsim.errors import UserError

if TYPE_CHECKING:
    from fedsim.cli.serving import OverSockets
    from fedsim.report.plan import Plan
    from fedsim.report.record import Perform


@click.command("run")
@options.scenario
@options.algorithm
@options.seed
@options.out
@click.option(
    "--bus",
    type=click.Choice(["memory", "http"]),
    default="memory",
    show_default=True,
    help="Simulate in this process, or run in real time over sockets between processes of this machine.",
)
@click.option(
    "--processes",
    type=options.PROCESSES,
    metavar="N",
    help="Client processes, with --bus http.  [default: 2]",
)
@options.output
def command(
    scenario_file: Path,
    overrides: Sequence[str],
    algorithm: str | None,
    seed: int | None,
    out: Path | None,
    bus: Literal["memory", "http"],
    processes: int | None,
    force: bool,
    verify: bool,
    quiet: bool,
) -> None:
    """Run a scenario, and leave a folder with all that it has shown."""
    from fedsim.report.folder import check_folders
    from fedsim.report.record import record
    from fedsim.runtime.run import run

    if processes is not None and bus == "memory":
        raise UserError("--processes is for runs over sockets: give --bus http too, or leave it out")
    scenario = plans.load(scenario_file, overrides, algorithm=algorithm, seed=seed)
    name, folder = plans.place(scenario, out)
    check_folders([folder], force=force)
    plan = plans.plan(scenario, scenario_file, verify=verify)
    passed = SIMULATED
    perform: Perform = run
    if bus == "http":
        from fedsim.cli.sockets import PASSED

        passed = PASSED
        perform = _over_sockets(plan, processes or 2)
    with watching(f"{plan.name} {name}", plan.parts.rounds, quiet=quiet, passed=passed) as watch:
        recorded = record(plan, folder, force=force, watch=watch, perform=perform, bus=bus)
    show(recorded, folder, passed=passed)
    check_finite({"": recorded.result.non_finite})


def _over_sockets(plan: Plan, num_processes: int) -> OverSockets:
    """Return what runs a plan over sockets, with so many client processes started by itself."""
    from fedsim.bus.http.access import Access, ClientRanges, new_token
    from fedsim.cli.processes import Processes
    from fedsim.cli.serving import OverSockets
    from fedsim.cli.sockets import Address
    from fedsim.runtime.serve import unused

    clients = len(plan.parts.fleet)
    num_processes = min(num_processes, clients)
    ends = [clients * place // num_processes for place in range(num_processes + 1)]
    shares = [f"{first}-{end - 1}" for first, end in pairwise(ends)]
    secret, line = new_token(ClientRanges.parse(f"0-{clients - 1}"))
    workers = max(1, plan.parts.executor.config.workers // num_processes)

    def processes(here: Address) -> Processes:
        own = ("--workers", str(workers), "--while-fed")
        commands = [("join", f"http://{here}", "--clients", share, *own) for share in shares]
        return Processes(commands, {"FEDSIM_TOKEN": secret})

    if (remark := unused(plan.parts)) is not None:
        note(f"note: {remark}")
    return OverSockets(
        plan=plan,
        address=Address("127.0.0.1", 0),
        access=Access.from_lines([line]),
        processes=processes,
    )
