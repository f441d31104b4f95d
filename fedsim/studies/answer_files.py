"""The files of a study's answers, written from the folders of its runs alone.

:mod:`fedsim.studies.study_columns` says what is in its tables, ``study.parquet``, ``answers.csv``,
``front.csv`` and ``tuning.csv``. ``answers.md`` has the tables for people
(:mod:`fedsim.studies.answer_tables`) in Markdown, and ``answers.tex`` in LaTeX, for the package booktabs.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedsim.durable import telling
from fedsim.errors import OutputError
from fedsim.params import Array
from fedsim.report.atomic_folder import MEND, write_file
from fedsim.report.columns import Table, csv_of
from fedsim.report.cost_breakdown import Columns, Figures, Summary, means
from fedsim.report.places import COMPARISON, COMPARISON_CSV, STUDY, holds_scenario
from fedsim.report.summary import read_summary
from fedsim.report.tables import write_table
from fedsim.report.text_table import TextTable, to_latex, to_markdown
from fedsim.studies import comparison
from fedsim.studies.answer_tables import tables, tuning_table
from fedsim.studies.budgets import BUDGETS, Budget, FrontPoint, budgets, front
from fedsim.studies.comparison_plans import read_comparison_plan
from fedsim.studies.curves import Curves, read_curve
from fedsim.studies.plan import Setting, StudyPlan, load_study
from fedsim.studies.study_answers import Answer, answer_row, answers
from fedsim.studies.study_columns import ANSWERS, EVALUATIONS, FRONT, TUNING
from fedsim.studies.study_lock import locked
from fedsim.studies.tuning import read_tuning

MARKDOWN = "answers.md"
LATEX = "answers.tex"
FILES = (EVALUATIONS.file, ANSWERS.file, FRONT.file, TUNING.file, MARKDOWN, LATEX)
"""All files that can be there; ``tuning.csv`` only if something is tuned."""

NOT_THERE = "it is not there: it has not ended, or has failed"

NOT_FINITE = "at its end a model, or a loss, is not finite: see its log.jsonl"

NOT_CHOSEN = "it was not run, since no values of [tune] have a finite trial for each seed"

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """All answers of a study; ``ends`` are means over seeds of the figures of whole runs."""

    plan: StudyPlan
    curves: Mapping[Setting, Curves]
    ends: Mapping[Setting, Figures]
    summaries: Mapping[str, Summary]
    budgets: Sequence[Budget]
    answers: Sequence[Answer]
    fronts: Mapping[str, Sequence[FrontPoint]]
    tables: Sequence[TextTable]
    trials: Sequence[Row]
    failed: Mapping[str, str]


def read_answers(whole: StudyPlan, parent: Path) -> Answers:
    """Return the answers of those runs of a study that are in its folder."""
    tuning = read_tuning(whole, parent)
    plan, config = whole.chosen(tuning.chosen), whole.config
    runs = (*whole.all_trials, *plan.runs)
    known = {
        run.label: read_summary(parent / run.label)
        for run in runs
        if holds_scenario(parent / run.label, run.scenario_toml)
    }
    failed = {run.label: NOT_THERE for run in runs if run.label not in known}
    for run in plan.runs:  # and no trial, since a rate that is too large may be among those that are tried
        if run.label in known and not known[run.label]["finite"]:
            failed[run.label] = NOT_FINITE
    for setting, candidates in plan.candidates.items():
        if not candidates:
            failed[" ".join(map(str, (setting.variant, *setting.point)))] = NOT_CHOSEN
    curves: dict[Setting, dict[int, Columns]] = {setting: {} for setting in plan.settings}
    figures: dict[Setting, list[Figures]] = {}
    ended = [run for run in plan.runs if run.label in known]
    for run in ended:
        curves[run.setting][run.seed] = read_curve(parent / run.label)
        figures.setdefault(run.setting, []).append(comparison.compared_figures(known[run.label]))
    compared = budgets(curves, config.at)
    rows = answers(curves, config, compared)
    fronts = {bounds: front(curves, bounds, config.of) for bounds in BUDGETS}
    trials = [
        {
            **whole.row_of(setting, number),
            "seed": seed,
            "accuracy": score,
            "chosen": tuning.chosen.get(setting) == number,
        }
        for (setting, number), by_seed in tuning.scores.items()
        for seed, score in by_seed.items()
    ]
    summaries = {run.label: known[run.label] for run in ended}
    grids = tables(plan, rows, fronts, compared, comparison.diverged_note(summaries))
    if tuning.scores:
        grids.insert(0, tuning_table(whole, tuning))
    ends = {setting: means(some) for setting, some in figures.items()}
    return Answers(plan, curves, ends, summaries, compared, rows, fronts, grids, trials, failed)


def read_folder(folder: Path) -> Answers:
    """Return the answers of the runs that are in the folder of a study or a comparison."""
    if (folder / STUDY).is_file():
        return read_answers(load_study(folder / STUDY), folder)
    if not (folder / COMPARISON).is_file():
        raise OutputError(
            f"{folder} holds neither a study, which has a file {STUDY}, nor a comparison, which has a file "
            f"{COMPARISON}"
        )
    return read_answers(read_comparison_plan(folder), folder)


def write_answers(whole: StudyPlan, parent: Path) -> Answers:
    """Write the files of a study's answers, one process at a time, and return the answers."""
    with locked(parent / ANSWERS.file, wait=True):
        result = read_answers(whole, parent)
        contents = _contents(result)
        if whole.kind == "comparison":
            runs = {parent / label: summary for label, summary in result.summaries.items()}
            write_file(parent / COMPARISON, comparison.to_document(whole.name, runs, parent))
            write_file(parent / COMPARISON_CSV, comparison.to_csv(list(runs.values())))
        for name in FILES:
            if name in contents:
                write_file(parent / name, contents[name])
            else:
                with telling(parent / name, MEND):
                    (parent / name).unlink(missing_ok=True)
    return result


def _contents(result: Answers) -> dict[str, bytes]:
    plan, of_runs = result.plan, io.BytesIO()
    write_table(of_runs, EVALUATIONS.with_paths(plan.varied), evaluations(plan, result.curves))
    points = [
        {
            "budget": budget,
            "cost": point.cost,
            "accuracy": point.accuracy,
            **plan.row_of(point.setting),
        }
        for budget, points in result.fronts.items()
        for point in points
    ]
    tables: list[tuple[Table, Sequence[Row]]] = [(ANSWERS, answer_rows(result)), (FRONT, points)]
    tables += [(TUNING, result.trials)] if result.trials else []
    return {
        EVALUATIONS.file: of_runs.getvalue(),
        **{table.file: csv_of(table.with_paths(plan.varied), rows) for table, rows in tables},
        MARKDOWN: "\n".join(map(to_markdown, result.tables)).encode(),
        LATEX: "\n".join(map(to_latex, result.tables)).encode(),
    }


def evaluations(plan: StudyPlan, curves: Mapping[Setting, Curves]) -> Columns:
    """Return the columns of ``study.parquet``."""
    each = [
        ({**plan.row_of(setting), "seed": seed}, curve)
        for setting, by_seed in curves.items()
        for seed, curve in by_seed.items()
    ]
    lengths = [len(curve["round"]) for _, curve in each]
    columns: dict[str, Array] = {}
    for name in ("variant", "algorithm", "seed", *plan.varied):
        values = [identity[name] for identity, _ in each]
        # One type for a column: text, unless all values are numbers.
        if name == "seed":
            array = np.array(values, np.int64)
        elif name in plan.varied and all(type(value) in (int, float) for value in values):
            array = np.array(values, float)
        else:
            array = np.array(list(map(str, values)), object)
        columns[name] = np.repeat(array, lengths)
    for name in each[0][1] if each else ():
        columns[name] = np.concatenate([curve[name] for _, curve in each])
    return columns


def answer_rows(result: Answers) -> list[Row]:
    """Return the rows of ``answers.csv``."""
    return [answer_row(result.plan, result.budgets, answer) for answer in result.answers]
