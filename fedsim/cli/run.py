"""``fedsim run``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fedsim.cli import options, plans
from fedsim.cli.console import heading, note, pairs
from fedsim.cli.progress import watching

if TYPE_CHECKING:
    from fedsim.report.record import Recorded


@click.command("run")
@options.scenario
@options.algorithm
@click.option("--seed", type=click.IntRange(min=0), help="Use this seed instead of the scenario's.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder of the results.  [default: runs/<name>/<algorithm>-seed<seed>]",
)
@options.output
def command(
    scenario_file: Path,
    overrides: Sequence[str],
    algorithm: str | None,
    seed: int | None,
    out: Path | None,
    force: bool,
    verify: bool,
    quiet: bool,
) -> None:
    """Run a scenario, and leave a folder with all that it has shown."""
    from fedsim.report.folder import check_folders
    from fedsim.report.plan import RUNS, folder_name
    from fedsim.report.record import record

    scenario = plans.load(scenario_file, overrides, algorithm=algorithm, seed=seed)
    name = folder_name(scenario.algorithm.name, scenario.run.seed)
    folder = out or RUNS / scenario.run.name / name
    check_folders([folder], force=force)
    plan = plans.plan(scenario, scenario_file, verify=verify)
    with watching(f"{plan.name} {name}", plan.parts.rounds, quiet=quiet) as watch:
        recorded = record(plan, folder, force=force, watch=watch)
    _show(recorded, folder)


def _show(recorded: Recorded, folder: Path) -> None:
    from fedsim.report import ineligible, spending, text

    summary, result = recorded.summary, recorded.result
    accuracy, loss = summary["accuracy"], summary["loss"]
    heading(f"{summary['scenario']}: {summary['algorithm']}, seed {summary['seed']}")
    lines = []
    if accuracy["personal_mean"] is not None:
        spread = text.percent(accuracy["personal_mean"], accuracy["personal_std"])
        worst = text.percent(accuracy["personal_worst_decile"])
        lines.append(("accuracy", f"{spread} % over clients, worst tenth {worst} %"))
    if accuracy["global"] is not None:
        lines.append(("global", f"{text.percent(accuracy['global'])} % on the global test set"))
    if not lines and loss["personal_mean"] is not None:
        spread = text.number(loss["personal_mean"], loss["personal_std"])
        lines.append(("loss", f"{spread} over clients"))
        if loss["global"] is not None:
            lines.append(("global", f"{text.number(loss['global'])} on the global test set"))
    if not lines:
        lines.append(("accuracy", "not measured"))
    up, down = summary["bytes_up"] + summary["data_up"], summary["bytes_down"] + summary["data_down"]
    parameters = summary["parameters_up"] + summary["parameters_down"]
    lines += [
        (
            "simulated",
            f"{text.duration(summary['simulated_s'])} for {text.several(summary['rounds'], 'round')}",
        ),
        ("bytes", f"{text.size(up)} up, {text.size(down)} down"),
        ("parameters", f"{text.count(parameters)} sent"),
        ("drops", _counted(summary["drops"], result.drops)),
        ("rejected", _counted(summary["rejected"], result.rejections)),
        *(
            [("ineligible", who)]
            if (who := ineligible.line(summary["ineligible"], summary["clients"]))
            else []
        ),
        ("real time", text.duration(summary["wall_s"])),
    ]
    pairs(lines)
    heading(spending.TITLE)
    pairs(spending.lines(summary))
    note(f"\nresults are in {folder}")


def _counted(total: int, reasons: dict[str, int]) -> str:
    if not total:
        return "none"
    return f"{total} ({', '.join(f'{reason}: {reasons[reason]}' for reason in sorted(reasons))})"
