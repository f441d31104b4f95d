"""``fedsim compare``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedsim.cli.console import note, table
from fedsim.cli.progress import watching
from fedsim.cli.run_summary import check_finite
from fedsim.errors import Fault, RunError, ScenarioError
from fedsim.report import comparison, cost_breakdown
from fedsim.report.atomic_folder import RUNS, check_files, check_folders, run_name, write_file
from fedsim.report.record_run import record
from fedsim.scenario import Plan, Scenario, load_scenario


def compare(
    scenario_file: Path,
    overrides: Sequence[str],
    algorithms: list[str],
    seeds: list[int] | None,
    out: Path | None,
    force: bool,
    verify: bool,
    quiet: bool,
) -> None:
    """Run each algorithm with each seed, and show tables of all."""
    scenarios = _load_all(scenario_file, overrides, algorithms, seeds or [None])
    name = scenarios[0].run.name
    parent = out or RUNS / name
    labels = [run_name(one.algorithm.name, one.run.seed) for one in scenarios]
    folders = [parent / label for label in labels]
    check_folders(folders, force=force)
    files = csv, document = parent / "comparison.csv", parent / "comparison.json"
    check_files(files, force=force)
    summaries, faults = [], {}
    for scenario, label, folder in zip(scenarios, labels, folders, strict=True):
        plan = Plan.of(scenario, str(scenario_file), verify=verify)
        with watching(f"{name} {label}", plan.parts.rounds, quiet=quiet) as watch:
            try:
                recorded = record(plan, folder, force=force, watch=watch)
            except RunError as error:
                error.add_note(f"it was {label}; runs that had ended before are kept in {parent}")
                raise
        summaries.append(recorded.summary)
        faults[label] = recorded.result.non_finite
    write_file(document, comparison.to_document(name, summaries, folders, parent))
    write_file(csv, comparison.to_csv(summaries))
    table(comparison.table(summaries))
    table(cost_breakdown.table(summaries))
    note(f"\nresults are in {parent}: comparison.csv, comparison.json, and one folder for each run")
    check_finite(faults)


def _load_all(
    file: Path, overrides: Sequence[str], algorithms: Sequence[str], seeds: Sequence[int | None]
) -> list[Scenario]:
    """Return the scenario of a file for each seed and algorithm, seed by seed.

    Raises:
        UserError: All faults that it has with any of them, each once.
    """
    scenarios: list[Scenario] = []
    faults: dict[Fault, None] = {}
    for seed in seeds:
        for algorithm in algorithms:
            try:
                scenarios.append(load_scenario(file, overrides, algorithm=algorithm, seed=seed))
            except ScenarioError as error:
                faults |= dict.fromkeys(error.faults)
    if faults:
        raise ScenarioError(list(faults), str(file))
    return scenarios
