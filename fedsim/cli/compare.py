"""``fedsim compare``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fedsim.cli.console import note, say, sentence, table
from fedsim.cli.live import live_page
from fedsim.cli.progress import TimeLeft, Watch, watching
from fedsim.cli.report import check_report_place, note_report
from fedsim.cli.run_summary import check_succeeded
from fedsim.cli.study import Both, check_failed, note_kept, show_study, watching_study
from fedsim.page.live_session import comparison_on
from fedsim.report import comparison, cost_breakdown
from fedsim.report.places import TABLES, by_name, comparison_place
from fedsim.report.record_comparison import check_comparison, record_comparison, write_comparison
from fedsim.scenario import load_each, tracked
from fedsim.studies.answer_files import FILES, write_answers
from fedsim.studies.answer_sentence import answer_sentence
from fedsim.studies.perform import On, do_beside
from fedsim.studies.plan import comparison_plan
from fedsim.studies.short_form import short_form, varies
from fedsim.studies.variant_params import params_table, plan_remarks


def compare(
    scenario_file: Path,
    overrides: Sequence[str],
    algorithms: list[str],
    seeds: list[int] | None,
    targets: tuple[float, ...],
    jobs: int | None,
    on: On | None,
    out: Path | None,
    force: bool,
    verify: bool,
    report: bool,
    track: Sequence[str],
    live: int | None,
    quiet: bool,
    show_params: bool,
) -> None:
    """Run each algorithm with each seed, and show tables of all; with several values of a path do a study."""
    if varies(overrides):
        plan = short_form(scenario_file, overrides, algorithms, seeds, targets).tracked(track)
        show_study(
            plan,
            out,
            jobs if on else jobs or 1,
            on,
            force=force,
            verify=verify,
            report=report,
            live=live,
            quiet=quiet,
            show_params=show_params,
        )
        return
    loaded = load_each(scenario_file, overrides, algorithms, seeds)
    scenarios = [tracked(one, track) for one in loaded]
    name = scenarios[0].run.name
    parent = out or comparison_place(scenarios, tables=(*TABLES, *FILES), force=force)
    runs, plan = by_name(scenarios), comparison_plan(scenarios, targets)

    check_comparison(scenarios, parent, tables=(*TABLES, *FILES), force=force)
    if report:
        check_report_place(parent, force=force)
    remarks, faults, kept = list[str](), dict[str, str](), len(runs)
    for remark in plan_remarks(plan):
        note(f"note: {remark}")
    kept_in = f"runs that have ended are kept in {parent}"
    try:
        page, is_here = live_page(live), jobs is None and on is None
        with comparison_on(page, scenarios, parent, targets, is_here=is_here) as followed:
            if is_here:
                time_left = TimeLeft(len(runs))

                @contextmanager
                def watch(label: str, rounds: int | None) -> Iterator[Watch]:
                    time_left.ended = list(runs).index(label)
                    named = f"run {time_left.ended + 1} of {len(runs)}, {label}"
                    with (
                        followed.running(label),
                        watching(named, rounds, quiet=quiet, time_left=time_left) as watch,
                    ):
                        yield watch

                for one in record_comparison(
                    scenarios,
                    str(scenario_file),
                    parent,
                    watch,
                    observe=followed.observe,
                    force=force,
                    verify=verify,
                    keep=True,
                    tell=note,
                ):
                    label, kept = one.folder.name, kept - 1
                    remarks += [f"note: {label}: {remark}" for remark in one.remarks]
                    if (failure := one.result.failure) is not None:
                        faults[label] = failure
            else:
                with watching_study(name, quiet=quiet) as watch_study:
                    told = Both(watch_study, followed)
                    failed = do_beside(plan.runs, parent, jobs, on=on, force=force, verify=verify, watch=told)
                kept = told.last.kept
                if failed:
                    note(kept_in)
                check_failed(failed, "comparison")
            summaries = write_comparison(scenarios, parent)
            found = write_answers(plan, parent)
    except KeyboardInterrupt:
        note(kept_in)
        raise
    sentence(answer_sentence(found))
    say()
    table(comparison.table(summaries))
    table(cost_breakdown.table(summaries))
    for grid in found.tables if targets else ():
        table(grid)
    if show_params:
        table(params_table(plan))
    note(f"\nresults are in {parent}: comparison.csv, comparison.json, and one folder for each run")
    note_kept(kept, len(runs))
    if report:
        note_report(parent)
    for remark in remarks:
        note(remark)
    check_succeeded({**found.failed, **faults})
