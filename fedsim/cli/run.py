"""``fedsim run``, and what all commands that do one run share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict, Unpack

from fedsim.cli.console import heading, note, pairs
from fedsim.cli.options import OutputOptions
from fedsim.cli.progress import live_page, watching
from fedsim.errors import RunError
from fedsim.page.live_session import run_on
from fedsim.report import cost_breakdown, run_text
from fedsim.report.atomic_folder import check_folders
from fedsim.report.continued_runs import extended_plan, resumed_plan
from fedsim.report.cost_breakdown import Summary
from fedsim.report.forked_runs import forked
from fedsim.report.places import is_own, run_name, run_place
from fedsim.report.provenance import Bus
from fedsim.report.record_run import Perform, record
from fedsim.report.run_text import PASSED, SIMULATED
from fedsim.runtime.run import run as simulate
from fedsim.scenario import Plan, load_scenario, resolved_toml, tracked


class Options(OutputOptions):
    """The options of all commands that do one run."""

    scenario_file: Path
    overrides: Sequence[str]
    algorithm: str | None
    seed: int | None


def run(profile: bool, **options: Unpack[Options]) -> None:
    """Run a scenario in virtual time."""
    plan, folder = planned(options, "memory")
    run_and_show(plan, folder, simulate, "memory", options, profile=profile)


class ResumedOptions(TypedDict):
    """The options of commands that go on with a run."""

    track: Sequence[str]
    profile: bool
    live: int | None
    quiet: bool


def resume(folder: Path, overrides: Sequence[str], **options: Unpack[ResumedOptions]) -> None:
    """Go on with an interrupted run."""
    _go_on(resumed_plan(folder, overrides, options["track"]), folder, options)


def extend(folder: Path, rounds: int, **options: Unpack[ResumedOptions]) -> None:
    """Go on with a finished run."""
    _go_on(extended_plan(folder, rounds, options["track"], note), folder, options)


def fork(
    folder: Path,
    at_s: float,
    overrides: Sequence[str],
    out: Path | None,
    force: bool,
    **options: Unpack[ResumedOptions],
) -> None:
    """Continue a copy of a run, with other settings."""
    plan, place = forked(folder, at_s, overrides, out, options["track"], force=force, tell=note)
    _go_on(plan, place, options)


def _go_on(plan: Plan, folder: Path, options: ResumedOptions) -> None:
    live, quiet, profile = options["live"], options["quiet"], options["profile"]
    output = OutputOptions(
        out=folder, force=False, verify=False, track=options["track"], live=live, quiet=quiet
    )
    run_and_show(plan, folder, simulate, "memory", output, profile=profile, goes_on=True)


def planned(options: Options, bus: Bus, *, clients_stay: bool = True) -> tuple[Plan, Path]:
    """Return the plan of a run and its folder, which can be written."""
    file = options["scenario_file"]
    loaded = load_scenario(file, options["overrides"], algorithm=options["algorithm"], seed=options["seed"])
    scenario = tracked(loaded, options["track"])
    force = options["force"]
    goes_on = clients_stay and scenario.run.checkpoint.keep > 0 and not options["verify"]
    folder = options["out"] or run_place(scenario, bus, force=force, goes_on=goes_on)
    check_folders([folder], force=force or is_own(folder, resolved_toml(scenario), bus, goes_on=goes_on))
    return Plan.of(scenario, str(file), verify=options["verify"]), folder


def run_and_show(
    plan: Plan,
    folder: Path,
    perform: Perform,
    bus: Bus,
    options: OutputOptions,
    *,
    profile: bool = False,
    goes_on: bool | None = None,
    clients_stay: bool = True,
) -> None:
    """Do a run, write its folder, and print its results."""
    label = f"{plan.name} {run_name(plan.algorithm, plan.parts.seed)}"
    passed = SIMULATED if bus == "memory" else PASSED
    with (
        run_on(live_page(options["live"]), plan, folder, passed) as observe,
        watching(label, plan.parts.rounds, quiet=options["quiet"], passed=passed) as watch,
    ):
        recorded = record(
            plan,
            folder,
            force=options["force"],
            goes_on=False if options["force"] else goes_on,
            watch=watch,
            observe=observe,
            perform=perform,
            bus=bus,
            tell=note,
            profile=profile,
            clients_stay=clients_stay,
        )
    show(recorded.summary, folder, passed=passed)
    for remark in recorded.remarks:
        note(f"note: {remark}")
    if recorded.result.failure is not None:
        raise RunError(recorded.result.failure)


def show(summary: Summary, folder: Path, *, passed: str = run_text.SIMULATED) -> None:
    """Print a run in a few lines."""
    heading(run_text.title(summary))
    pairs(run_text.pairs(summary, passed))
    heading(cost_breakdown.TITLE)
    pairs(cost_breakdown.lines(summary))
    note(f"\nresults are in {folder}")
