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
from fedsim.report.places import TABLES, by_name, holds_comparison, holds_run
from fedsim.report.record_run import Recorded, record
from fedsim.report.summary import read_summary
from fedsim.report.tracking import Tell, warn
from fedsim.runtime.records.recorder import Observe, unobserved
from fedsim.runtime.records.result import RoundRow
from fedsim.scenario import Plan, Scenario

Watching: TypeAlias = Callable[[str, int | None], AbstractContextManager[Callable[[RoundRow], None]]]
"""Given a run's label and its number of rounds, yields what is told of each round as it ends."""


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
    """Yield each run that is done as it ends, and write the tables after the last; only summaries are kept.

    Args:
        scenarios: One for each run: the same but for the algorithm and the seed.
        source: What errors call them.
        parent: The folder of the run folders.
        watching: Watches a run.
        observe: Given what will record a run, once it is watched.
        force: Whether earlier results may be replaced; those of the same runs may be in any case.
        verify: Whether every invariant is checked while running.
        keep: Whether runs that are there already are left as they are, and not done again.
        tell: Told where a tracker fails.
        known_as: The folder by which trackers know the comparison, if the results go to a temporary one.

    Raises:
        OutputError: A place is occupied or cannot be written, found before the first run.
        RunError: A run failed; those before it are kept.
    """
    runs = by_name(scenarios)
    folders = [parent / label for label in runs]
    for folder, written in zip(folders, runs.values(), strict=True):
        check_folders([folder], force=force or holds_run(folder, written))
    files = csv, document = [parent / table for table in TABLES]
    check_files(files, force=force or holds_comparison(parent, runs))
    summaries = []
    for scenario, label, folder in zip(scenarios, runs, folders, strict=True):
        if keep and holds_run(folder, runs[label]):
            summaries.append(read_summary(folder))
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
        summaries.append(done.summary)
        yield done
        del done  # its tables and models, before the next run makes others
    name = scenarios[0].run.name
    write_file(document, comparison.to_document(name, summaries, folders, parent))
    write_file(csv, comparison.to_csv(summaries))
