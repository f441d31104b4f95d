"""``fedsim compare``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from fedsim.cli import options, plans
from fedsim.cli.console import note, table
from fedsim.cli.outcome import check_finite
from fedsim.cli.progress import watching
from fedsim.errors import RunError
from fedsim.quoting import quoted


def _names(context: click.Context, parameter: click.Parameter, value: str) -> list[str]:
    names = [name.strip() for name in value.split(",") if name.strip()]
    if not names:
        raise click.BadParameter("name at least one algorithm, such as fedavg,local")
    return _distinct(names)


def _seeds(context: click.Context, parameter: click.Parameter, value: str | None) -> list[int | None]:
    if value is None:
        return [None]
    texts = [seed.strip() for seed in value.split(",") if seed.strip()]
    if not texts:
        raise click.BadParameter(f"{quoted(value)} must hold at least one seed, such as 0,1,2")
    return list(_distinct([options.SEED.convert(text, parameter, context) for text in texts]))


def _distinct(values: list[Any]) -> list[Any]:
    twice = [value for value in values if values.count(value) > 1]
    if twice:
        raise click.BadParameter(f"{quoted(twice[0])} is named twice: name each once")
    return values


@click.command("compare")
@options.scenario
@click.option(
    "--algorithms",
    required=True,
    metavar="A,B",
    callback=_names,
    help="The algorithms to compare, separated by commas.",
)
@click.option(
    "--seeds",
    metavar="0,1",
    callback=_seeds,
    help="Run each algorithm with each of these seeds.  [default: the scenario's]",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder of the run folders.  [default: runs/<name>]",
)
@options.output
def command(
    scenario_file: Path,
    overrides: Sequence[str],
    algorithms: list[str],
    seeds: list[int | None],
    out: Path | None,
    force: bool,
    verify: bool,
    quiet: bool,
) -> None:
    """Run several algorithms, and show side by side what each costs.

    Beside the folders of the runs, comparison.csv and comparison.json hold what the tables show and more.
    """
    from fedsim.report import comparison, spending
    from fedsim.report.folder import check_files, check_folders, write_file
    from fedsim.report.plan import RUNS, folder_name
    from fedsim.report.record import record

    scenarios = plans.load_all(scenario_file, overrides, algorithms=algorithms, seeds=seeds)
    name = scenarios[0].run.name
    parent = out or RUNS / name
    labels = [folder_name(one.algorithm.name, one.run.seed) for one in scenarios]
    folders = [parent / label for label in labels]
    check_folders(folders, force=force)
    files = csv, document = parent / "comparison.csv", parent / "comparison.json"
    check_files(files, force=force)
    summaries, faults = [], {}
    for scenario, label, folder in zip(scenarios, labels, folders, strict=True):
        plan = plans.plan(scenario, scenario_file, verify=verify)
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
    table(comparison.grid(summaries))
    table(spending.grid(summaries))
    note(f"\nresults are in {parent}: comparison.csv, comparison.json, and one folder for each run")
    check_finite(faults)
