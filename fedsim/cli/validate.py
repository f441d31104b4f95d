"""``fedsim validate``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from click.exceptions import Exit

from fedsim.cli.console import note, say, sentence, table
from fedsim.cli.progress import watching
from fedsim.page.write_report import write_report
from fedsim.report import validation
from fedsim.scenario import load_scenario
from fedsim.studies.validation_runs import validate as do_runs
from fedsim.studies.validation_runs import validation_place

DISAGREES = 1
"""The exit status if a prediction does not agree, or nothing can be said."""


def validate(
    scenario_file: Path,
    overrides: Sequence[str],
    algorithms: list[str] | None,
    seed: int | None,
    speed_up: float | None,
    is_plain: bool,
    processes: int | None,
    out: Path | None,
    quiet: bool,
) -> None:
    """Simulate a scenario, run it over sockets, and show how well it was predicted."""
    chosen: Sequence[str | None] = algorithms or [None]
    scenarios = [load_scenario(scenario_file, overrides, algorithm=name, seed=seed) for name in chosen]
    folder = out or validation_place(scenarios[0])
    found = do_runs(
        scenarios,
        folder,
        speed_up=None if is_plain else speed_up or 1.0,
        processes=processes or 2,
        watching=partial(watching, quiet=quiet),
        tell=note,
    )
    sentence(validation.sentence(found))
    for grid in validation.tables(found):
        table(grid)
    say()
    note(f"results are in {folder}, its report for a browser is {write_report(folder)}")
    for remark in validation.remarks(found):
        note(f"note: {remark}")
    if any(one.verdict() != "agrees" for one in found):
        raise Exit(DISAGREES)
