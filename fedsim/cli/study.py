"""``fedsim study`` and ``fedsim compare``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Unpack

from fedsim.cli.console import note, say, sentence, table
from fedsim.cli.options import OutputOptions
from fedsim.cli.progress import TimeLeft, bar, live_page, watching
from fedsim.cli.progress import Watch as RoundWatch
from fedsim.cli.results import check_report_place, note_report
from fedsim.page.live_session import study_on
from fedsim.report import cost_breakdown, number_format
from fedsim.report.text_table import TextTable
from fedsim.studies import comparison
from fedsim.studies.answer_files import Answers
from fedsim.studies.answer_sentence import answer_sentence
from fedsim.studies.comparison_plans import command_plan
from fedsim.studies.perform import On, Progress, Watch, check_failed, perform
from fedsim.studies.plan import StudyPlan, load_study
from fedsim.studies.study_place import study_place
from fedsim.studies.variant_params import params_table, plan_remarks


class Options(OutputOptions):
    """The options of all commands that do several runs."""

    jobs: int | None
    on: On | None
    report: bool


def study(study_file: Path, **options: Unpack[Options]) -> None:
    """Do the runs of a study that are not there yet, and show what all of them answer."""
    show_study(load_study(study_file), options)


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


def show_study(plan: StudyPlan, options: Options, *, show_params: bool = False) -> None:
    """Do the runs of a study or a comparison, and show its tables."""
    plan = plan.tracked(options["track"])
    force, jobs, on, quiet = options["force"], options["jobs"], options["on"], options["quiet"]
    parent = options["out"] or study_place(plan, force=force)
    if options["report"]:
        check_report_place(parent, force=force)
    for remark in plan_remarks(plan):
        note(f"note: {remark}")
    is_here = jobs == 1 and on is None
    is_comparison = plan.kind == "comparison"
    is_by_round = is_here and is_comparison
    show = watching_each(plan, quiet=quiet) if is_by_round else watching_study(plan.name, quiet=quiet)
    last, remarks = Progress(0, 0), list[str]()
    try:
        with (
            study_on(live_page(options["live"]), plan, parent, is_here=is_here) as (update_page, observe),
            show as watch,
        ):

            def watch_all(progress: Progress) -> None:
                nonlocal last
                last = progress
                watch(progress)
                update_page(progress)
                if progress.run is not None and progress.recorded is not None:
                    remarks.extend(f"{progress.run.label}: {remark}" for remark in progress.recorded.remarks)

            answers = perform(
                plan,
                parent,
                jobs=jobs,
                on=on,
                force=force,
                verify=options["verify"],
                watch=watch_all,
                observe=observe,
                tell=note,
            )
    except KeyboardInterrupt:
        note(f"runs that have ended are kept in {parent}: the same command goes on from there")
        raise
    sentence(answer_sentence(answers))
    if is_comparison:
        say()
    for grid in shown_tables(answers):
        table(grid)
    if show_params:
        table(params_table(answers.plan))
    files = "comparison.csv, comparison.json" if is_comparison else "answers.csv, study.parquet"
    note(f"\nresults are in {parent}: {files}, and one folder for each run")
    note_kept(last.kept, last.total)
    if options["report"]:
        note_report(parent)
    for remark in remarks:
        note(f"note: {remark}")
    check_failed(answers.failed, plan.kind)


def shown_tables(answers: Answers) -> Sequence[TextTable]:
    """Return the tables of a study; of a comparison those of its runs, and with targets those of a study."""
    if answers.plan.kind == "study":
        return answers.tables
    runs = list(answers.summaries.values())
    return [
        comparison.table(runs),
        cost_breakdown.table(runs),
        *(answers.tables if answers.plan.config.targets else ()),
    ]


def note_kept(kept: int, total: int) -> None:
    """Print how many runs were there already."""
    if kept:
        were = "was" if kept == 1 else "were"
        kept_words = (
            f"{kept} of {number_format.several(total, 'run')} {were} there already and {were} not run again"
        )
        note(f"{kept_words}; a new folder, --out FOLDER, runs them anew")


@contextmanager
def watching_each(plan: StudyPlan, *, quiet: bool) -> Iterator[Watch]:
    """Yield a progress display of the rounds of runs in this process."""
    labels = [run.label for run in plan.runs]
    time_left = TimeLeft(len(labels))
    with ExitStack() as stack:
        show: RoundWatch | None = None

        def watch(progress: Progress) -> None:
            nonlocal show
            run = progress.run
            if run is None:
                return
            if show is None and not progress.said:
                time_left.ended = labels.index(run.label)
                named = f"run {time_left.ended + 1} of {len(labels)}, {run.label}"
                show = stack.enter_context(watching(named, run.rounds, quiet=quiet, time_left=time_left))
            if show is not None and progress.row is not None:
                show(progress.row)
            if progress.said == "ended" or progress.recorded is not None:
                show = None
                stack.close()

        yield watch


@contextmanager
def watching_study(name: str, *, quiet: bool) -> Iterator[Watch]:
    """Yield a progress display of a study: a bar on a terminal, a line for each run elsewhere."""
    began_s = monotonic()
    if quiet:
        yield lambda progress: None
    elif sys.stderr.isatty():
        with bar(name, 1.0) as (shown, task):

            def show(progress: Progress) -> None:
                if begun := _begun(progress):
                    shown.console.out(f"{name}: {begun}", highlight=False)
                shown.update(task, completed=progress.share, words=words(progress, monotonic() - began_s))

            yield show
    else:
        yield partial(_line, name, began_s)


def _line(name: str, began_s: float, progress: Progress) -> None:
    if begun := _begun(progress):
        note(f"{name}: {begun}")
    elif progress.said:
        note(f"{name}: {words(progress, monotonic() - began_s)}")


def _begun(progress: Progress) -> str:
    """Return how many runs there are at the beginning; empty later."""
    if progress.run is not None or progress.ended or not progress.at_once:
        return ""
    runs = number_format.several(progress.total, "run")
    kept = f"{progress.kept} of {runs} there already" if progress.kept else runs
    return f"{kept}, {progress.at_once} at once"


def words(progress: Progress, passed_s: float) -> str:
    """Return which run has ended or is under way, and how much real time is left."""
    number = progress.kept + progress.ended + (not progress.said)
    text = f"run {min(number, progress.total)} of {progress.total}"
    if progress.run is not None:
        text += f": {progress.run.label}, "
        if not progress.said:
            of = f" of {progress.run.rounds}" if progress.run.rounds else ""
            text += f"round {progress.rounds[progress.run.label]}{of}"
        else:
            text += "ended" if progress.said == "ended" else f"failed: {progress.said.splitlines()[-1]}"
    return ", ".join(filter(None, (text, number_format.time_left(passed_s, progress.share))))
