"""Doing the runs of a comparison, and leaving its folder.

======================= ============================================================
one folder for each run :mod:`fedsim.report.record_run`
``comparison.json``     figures over seeds, and the summary of every run
``comparison.csv``      one line per run
======================= ============================================================
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeAlias

from fedsim.errors import RunError
from fedsim.report import comparison
from fedsim.report.atomic_folder import check_files, check_folders, run_name, write_file
from fedsim.report.record_run import Recorded, record
from fedsim.runtime.records.result import RoundRow
from fedsim.scenario import Plan, Scenario

Watching: TypeAlias = Callable[[str, int], AbstractContextManager[Callable[[RoundRow], None]]]
"""Given a run's label and its number of rounds, yields what is told of each round as it ends."""


def record_comparison(
    scenarios: Sequence[Scenario],
    source: str,
    parent: Path,
    watching: Watching,
    *,
    force: bool = False,
    verify: bool = False,
) -> list[Recorded]:
    """Do all runs, one after the other, and write the tables when the last has ended.

    Args:
        scenarios: One for each run: the same but for the algorithm and the seed.
        source: What errors call them.
        parent: The folder of the run folders.
        watching: Watches a run.
        force: Whether earlier results may be replaced.
        verify: Whether every invariant is checked while running.

    Raises:
        OutputError: A place is occupied or cannot be written, found before the first run.
        RunError: A run failed; those before it are kept.
    """
    labels = [run_name(one.algorithm.name, one.run.seed) for one in scenarios]
    folders = [parent / label for label in labels]
    files = csv, document = parent / "comparison.csv", parent / "comparison.json"
    check_folders(folders, force=force)
    check_files(files, force=force)
    done = []
    for scenario, label, folder in zip(scenarios, labels, folders, strict=True):
        plan = Plan.of(scenario, source, verify=verify)
        with watching(label, plan.parts.rounds) as watch:
            try:
                done.append(record(plan, folder, force=force, watch=watch))
            except RunError as error:
                error.add_note(f"it was {label}; runs that had ended before are kept in {parent}")
                raise
    summaries = [one.summary for one in done]
    name = scenarios[0].run.name
    write_file(document, comparison.to_document(name, summaries, folders, parent))
    write_file(csv, comparison.to_csv(summaries))
    return done
