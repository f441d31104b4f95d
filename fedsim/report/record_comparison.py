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
    """Check, before any run, that all that a comparison writes can be written, and replaces nothing else.

    Args:
        scenarios: One for each run: the same but for the algorithm and the seed.
        parent: The folder of the run folders.
        tables: The files that it leaves beside its run folders.
        force: Whether earlier results may be replaced; those of the same runs may be in any case.

    Raises:
        OutputError: A place is occupied or cannot be written.
    """
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
    """Do the runs of a comparison one after the other, and yield each that is done as it ends.

    Args:
        scenarios: One for each run.
        source: What errors call them.
        parent: The folder of the run folders.
        watching: Watches a run.
        observe: Given what will record a run, once it is watched.
        force: Whether earlier results may be replaced.
        verify: Whether every invariant is checked while running.
        keep: Whether runs that are there already are left as they are, and not done again.
        tell: Told where a tracker fails.
        known_as: The folder by which trackers know the comparison, if the results go to a temporary one.

    Raises:
        OutputError: The place of a run is occupied or cannot be written.
        UserError: As :func:`fedsim.scenario.build.require_numerics` says.
        RunError: A run failed; those before it are kept.
    """
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
    """Write the tables of a comparison, whose runs are in their folders, and return the runs' summaries.

    Raises:
        OutputError: A run is not there, or damaged.
        FileError: They cannot be written.
    """
    folders = [parent / label for label in by_name(scenarios)]
    summaries = [read_summary(folder) for folder in folders]
    csv, document = (parent / table for table in TABLES)
    write_file(document, comparison.to_document(scenarios[0].run.name, summaries, folders, parent))
    write_file(csv, comparison.to_csv(summaries))
    return summaries
