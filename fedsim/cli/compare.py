"""``fedsim compare``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

from fedsim.cli.study import Options, show_study
from fedsim.studies.comparison_plans import command_plan


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
    plan = command_plan(scenario_file, overrides, algorithms, seeds, targets)
    if options["on"] is None:
        options["jobs"] = options["jobs"] or 1
    show_study(plan, options, show_params=show_params)
