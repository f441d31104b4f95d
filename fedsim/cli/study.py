"""``fedsim study``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar

from fedsim.cli.console import note, sentence, table, terminal
from fedsim.cli.live import live_page
from fedsim.cli.report import check_report_place, note_report
from fedsim.errors import RunError
from fedsim.page.live_session import NoLivePage, study_on
from fedsim.report import number_format
from fedsim.studies.answer_sentence import answer_sentence
from fedsim.studies.perform import On, Progress, Watch, perform, study_place
from fedsim.studies.plan import StudyPlan, load_study
from fedsim.studies.variant_params import params_table, plan_remarks

if TYPE_CHECKING:
    from fedsim.page.live_study import LiveStudy


def study(
    study_file: Path,
    out: Path | None,
    jobs: int | None,
    on: On | None,
    force: bool,
    verify: bool,
    report: bool,
    track: Sequence[str],
    live: int | None,
    quiet: bool,
) -> None:
    """Do the runs of a study that are not there yet, and show what all of them answer."""
    plan = load_study(study_file).tracked(track)
    show_study(plan, out, jobs, on, force=force, verify=verify, report=report, live=live, quiet=quiet)


def show_study(
    plan: StudyPlan,
    out: Path | None,
    jobs: int | None,
    on: On | None,
    *,
    force: bool,
    verify: bool,
    report: bool,
    live: int | None,
    quiet: bool,
    show_params: bool = False,
) -> None:
    """Do the same for a plan.

    Raises:
        RunError: Runs have failed.
    """
    parent = out or study_place(plan, force=force)
    if report:
        check_report_place(parent, force=force)
    for remark in plan_remarks(plan):
        note(f"note: {remark}")
    try:
        with (
            study_on(live_page(live), plan, parent) as followed,
            watching_study(plan.name, quiet=quiet) as watch,
        ):
            told = Both(watch, followed)
            found = perform(plan, parent, jobs=jobs, on=on, force=force, verify=verify, watch=told)
    except KeyboardInterrupt:
        note(f"runs that have ended are kept in {parent}: the same command goes on from there")
        raise
    sentence(answer_sentence(found))
    for grid in found.tables:
        table(grid)
    if show_params:
        table(params_table(found.plan))
    note(f"\nresults are in {parent}: answers.csv, study.parquet, and one folder for each run")
    note_kept(told.last.kept, told.last.total)
    if report:
        note_report(parent)
    check_failed(found.failed, "study")


def check_failed(failed: Mapping[str, str], of: str) -> None:
    """Fail where runs have failed.

    Args:
        failed: Why, by their labels.
        of: Of what they are runs.

    Raises:
        RunError: Some have.
    """
    if failed:
        each = "\n  ".join(f"{label}: {said}" for label, said in failed.items())
        raise RunError(f"{number_format.several(len(failed), 'run')} of the {of}\n  {each}")


def note_kept(kept: int, total: int) -> None:
    """Say how many runs were not done, as they were there already."""
    if kept:
        were = "was" if kept == 1 else "were"
        said = (
            f"{kept} of {number_format.several(total, 'run')} {were} there already and {were} not run again"
        )
        note(f"{said}; a new folder, --out FOLDER, runs them anew")


@dataclass(slots=True)
class Both:
    """Tells a live page too.

    Attributes:
        watch: Told first.
        followed: The page.
        last: What they were told last.
    """

    watch: Watch
    followed: LiveStudy | NoLivePage
    last: Progress = field(default=Progress(0, 0), init=False)

    def __call__(self, progress: Progress) -> None:
        """Hear where the study is."""
        self.last = progress
        self.watch(progress)
        self.followed.hear(progress)


@contextmanager
def watching_study(name: str, *, quiet: bool) -> Iterator[Watch]:
    """Yield what shows how far a study is: a bar on a terminal, a line for each run elsewhere."""
    began_s = monotonic()
    if quiet:
        yield lambda progress: None
    elif sys.stderr.isatty():
        columns = (TextColumn("{task.description}", markup=False), BarColumn(bar_width=20))
        with Bar(
            *columns,
            TextColumn("{task.fields[words]}", markup=False),
            console=terminal(error=True),
            transient=True,
        ) as bar:
            task = bar.add_task(name, total=1.0, words="")

            def show(progress: Progress) -> None:
                if begun := _begun(progress):
                    bar.console.out(f"{name}: {begun}", highlight=False)
                bar.update(task, completed=progress.share, words=words(progress, monotonic() - began_s))

            yield show
    else:
        yield _lines(name, began_s)


def _lines(name: str, began_s: float) -> Callable[[Progress], None]:
    def show(progress: Progress) -> None:
        if begun := _begun(progress):
            note(f"{name}: {begun}")
        elif progress.said:
            note(f"{name}: {words(progress, monotonic() - began_s)}")

    return show


def _begun(progress: Progress) -> str:
    """Say at the beginning how many runs there are; empty later."""
    if progress.run is not None or progress.ended or not progress.at_once:
        return ""
    runs = number_format.several(progress.total, "run")
    kept = f"{progress.kept} of {runs} there already" if progress.kept else runs
    return f"{kept}, {progress.at_once} at once"


def words(progress: Progress, passed_s: float) -> str:
    """Say which run has ended or is under way, and how much real time is left.

    Args:
        progress: Where the study is.
        passed_s: Real time since its start, s.
    """
    number = progress.kept + progress.ended + (not progress.said)
    said = f"run {min(number, progress.total)} of {progress.total}"
    if progress.run is not None:
        said += f": {progress.run.label}, "
        if not progress.said:
            of = f" of {progress.run.rounds}" if progress.run.rounds else ""
            said += f"round {progress.rounds[progress.run.label]}{of}"
        else:
            said += "ended" if progress.said == "ended" else f"failed: {progress.said.splitlines()[-1]}"
    return ", ".join(filter(None, (said, number_format.time_left(passed_s, progress.share))))
