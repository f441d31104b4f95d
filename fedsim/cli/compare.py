"""``fedsim compare``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

from fedsim.cli.study import Options, show_study
from fedsim.scenario import load_each
from fedsim.studies.plan import comparison_plan
from fedsim.studies.short_form import short_form, varies


def compare(
    scenario_file: Path,
    overrides: Sequence[str],
    algorithms: list[str],
    seeds: list[int] | None,
    targets: tuple[float, ...],
    show_params: bool,
    **options: Unpack[Options],
) -> None:
    """Run each algorithm with each seed, and show tables of all; with several values of a path do a study."""
    if varies(overrides):
        plan = short_form(scenario_file, overrides, algorithms, seeds, targets)
    else:
        scenarios = load_each(scenario_file, overrides, algorithms, seeds)
        plan = comparison_plan(scenarios, targets, str(scenario_file))
    if options["on"] is None:
        options["jobs"] = options["jobs"] or 1
    show_study(plan, options, show_params=show_params)
