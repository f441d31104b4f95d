"""``fedsim run`` and ``fedsim serve``: one run, in this process or over sockets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedsim.bus.http.access import Access
from fedsim.cli.console import note
from fedsim.cli.outcome import check_finite, show
from fedsim.cli.progress import PASSED, SIMULATED, watching
from fedsim.errors import UserError
from fedsim.processes.server import ServerProcess
from fedsim.processes.sockets import Address, server_tls
from fedsim.report.folder import RUNS, check_folders, run_name
from fedsim.report.provenance import Bus
from fedsim.report.record import Perform, record
from fedsim.runtime.run import run as simulate
from fedsim.runtime.serve import unused
from fedsim.scenario import Plan, load_scenario


def run(
    scenario_file: Path,
    overrides: Sequence[str],
    algorithm: str | None,
    seed: int | None,
    out: Path | None,
    bus: Bus,
    processes: int | None,
    force: bool,
    verify: bool,
    quiet: bool,
) -> None:
    """Run a scenario in virtual time, or over sockets with client processes of its own."""
    if processes is not None and bus == "memory":
        raise UserError("--processes is for runs over sockets: give --bus http too, or leave it out")
    plan, folder = _plan(scenario_file, overrides, algorithm, seed, out, force=force, verify=verify)
    perform: Perform = simulate
    if bus == "http":
        perform = ServerProcess.with_children(plan, processes or 2)
        _note_unused(plan)
    _record(plan, folder, perform, bus, force=force, quiet=quiet)


def serve(
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
    """Run a scenario as the server of processes that join."""
    tls = server_tls(tls_cert, tls_key)
    if not listen.is_loopback and not insecure and (tls is None or tokens is None):
        raise UserError(
            f"{listen} can be reached from other machines: give --tls-cert, --tls-key and --tokens, or "
            "--insecure if you want everybody there to see and to join this run"
        )
    access = Access.open() if tokens is None else Access.from_file(tokens)
    plan, folder = _plan(scenario_file, overrides, algorithm, seed, out, force=force, verify=verify)
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
        tell=None if quiet else note,
    )
    _record(plan, folder, perform, "http", force=force, quiet=quiet)


def _plan(
    file: Path,
    overrides: Sequence[str],
    algorithm: str | None,
    seed: int | None,
    out: Path | None,
    *,
    force: bool,
    verify: bool,
) -> tuple[Plan, Path]:
    """Return what to run, and the folder of its results, which is free."""
    scenario = load_scenario(file, overrides, algorithm=algorithm, seed=seed)
    name = run_name(scenario.algorithm.name, scenario.run.seed)
    folder = out or RUNS / scenario.run.name / name
    check_folders([folder], force=force)
    return Plan.of(scenario, str(file), verify=verify), folder


def _note_unused(plan: Plan) -> None:
    if (remark := unused(plan.parts)) is not None:
        note(f"note: {remark}")


def _record(plan: Plan, folder: Path, perform: Perform, bus: Bus, *, force: bool, quiet: bool) -> None:
    label = f"{plan.name} {run_name(plan.algorithm, plan.parts.seed)}"
    passed = SIMULATED if bus == "memory" else PASSED
    with watching(label, plan.parts.rounds, quiet=quiet, passed=passed) as watch:
        recorded = record(plan, folder, force=force, watch=watch, perform=perform, bus=bus)
    show(recorded, folder, passed=passed)
    check_finite({"": recorded.result.non_finite})
