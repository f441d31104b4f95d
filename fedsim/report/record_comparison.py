"""Doing the runs of a comparison, and leaving its folder.

======================= ============================================================
one folder for each run :mod:`fedsim.report.record_run`
``comparison.json``     figures over seeds, and the summary of every run
``comparison.csv``      one line per run
======================= ============================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeAlias

from fedsim.errors import RunError
from fedsim.report import comparison
from fedsim.report.atomic_folder import check_files, check_folders, write_file
from fedsim.report.cost_breakdown import Summary
from fedsim.report.places import TABLES, by_name, holds_comparison, holds_run
from fedsim.report.record_run import Recorded, record
from fedsim.report.summary import read_summary
from fedsim.report.tracking import Tell, warn
from fedsim.runtime.records.recorder import Observe, unobserved
from fedsim.runtime.records.result import RoundRow
from fedsim.scenario import Plan, Scenario
from fedsim.scenario.build import require_numerics

Watching: TypeAlias = Callable[[str, int | None], AbstractContextManager[Callable[[RoundRow], None]]]
"""Given a run's label and its number of rounds, yields what is told of each round as it ends."""


def check_comparison(
    scenarios: Sequence[Scenario], parent: Path, *, tables: Sequence[str] = TABLES, force: bool = False
) -> None:
    """Check, before any run, that all that a comparison writes can be written, and replaces nothing else."""
    runs = by_name(scenarios)
    for label, written in runs.items():
        check_folders([parent / label], force=force or holds_run(parent / label, written))
    check_files([parent / table for table in tables], force=force or holds_comparison(parent, runs))


def record_comparison(
    scenarios: Sequence[Scenario],
    source: str,
    parent: Path,
    watching: Watching,
    *,
    observe: Observe = unobserved,
    force: bool = False,
    verify: bool = False,
    keep: bool = False,
    tell: Tell = warn,
    known_as: Path | None = None,
) -> Iterator[Recorded]:
    """Do the runs of a comparison one after the other, and yield each that is done as it ends."""
    require_numerics(scenario.engine for scenario in scenarios)
    for scenario, (label, written) in zip(scenarios, by_name(scenarios).items(), strict=True):
        folder = parent / label
        if keep and holds_run(folder, written):
            continue
        plan = Plan.of(scenario, source, verify=verify)
        with watching(label, plan.parts.rounds) as watch:
            try:
                its_name = (known_as or parent) / label
                done = record(
                    plan, folder, force=force, watch=watch, observe=observe, tell=tell, known_as=its_name
                )
            except RunError as error:
                error.add_note(f"it was {label}; runs that had ended before are kept in {parent}")
                raise
        yield done
        del done  # its tables and models, before the next run makes others


def write_comparison(scenarios: Sequence[Scenario], parent: Path) -> list[Summary]:
    """Write the tables of a comparison, whose runs are in their folders, and return the runs' summaries."""
    folders = [parent / label for label in by_name(scenarios)]
    summaries = [read_summary(folder) for folder in folders]
    csv, document = (parent / table for table in TABLES)
    write_file(document, comparison.to_document(scenarios[0].run.name, summaries, folders, parent))
    write_file(csv, comparison.to_csv(summaries))
    return summaries
