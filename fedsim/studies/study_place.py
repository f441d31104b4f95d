"""The folder of a study or a comparison: where it is, and what may be written there."""

from __future__ import annotations

from pathlib import Path

from fedsim.report.atomic_folder import check_files, check_folders, is_free
from fedsim.report.places import (
    COMPARISON,
    RUNS,
    STUDY,
    TABLES,
    first_fit,
    holds_scenario,
    is_own,
    read_json,
)
from fedsim.studies.answer_files import FILES
from fedsim.studies.plan import StudyPlan, StudyRun


def study_place(plan: StudyPlan, *, force: bool = False) -> Path:
    """Return the default folder of a study or a comparison."""
    first = RUNS / plan.name

    def fits(parent: Path) -> bool:
        if not _is_of(plan, parent) and any((parent / file).exists() for file in _files(plan)):
            return False
        may_be_made = parent.is_dir() or is_free(parent)
        return may_be_made and all(
            is_free(parent / run.label) or _is_own(plan, parent, run) for run in plan.all_runs
        )

    return first if force else first_fit(first, fits)


def check_place(plan: StudyPlan, parent: Path, *, force: bool = False) -> None:
    """Check, before any run, that all results can be written, and replace nothing else unless forced."""
    for run in plan.all_runs:
        check_folders([parent / run.label], force=force or _is_own(plan, parent, run))
    check_files([parent / file for file in _files(plan)], force=force or _is_of(plan, parent))


def _files(plan: StudyPlan) -> tuple[str, ...]:
    return (*TABLES, *FILES) if plan.kind == "comparison" else (STUDY, *FILES)


def _is_own(plan: StudyPlan, parent: Path, run: StudyRun) -> bool:
    """Whether a folder holds this run; one of a comparison must be known to have the same results."""
    folder, written = parent / run.label, run.scenario_toml
    return is_own(folder, written) or (plan.kind == "study" and holds_scenario(folder, written))


def _is_of(plan: StudyPlan, parent: Path) -> bool:
    """Whether a folder holds a study, or a comparison of exactly these runs."""
    if plan.kind == "study":
        return (parent / STUDY).is_file()
    try:
        compared = {run["folder"] for run in read_json(parent / COMPARISON)["runs"]}
    except (KeyError, TypeError):
        return False
    return compared == {run.label for run in plan.runs} and all(
        _is_own(plan, parent, run) for run in plan.runs
    )
