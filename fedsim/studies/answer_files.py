"""The files of a study's answers, written from the folders of its runs alone.

:mod:`fedsim.studies.study_columns` says what is in its tables, ``study.parquet``, ``answers.csv``,
``front.csv`` and ``tuning.csv``. ``answers.md`` has the tables for people
(:mod:`fedsim.studies.answer_tables`) in Markdown, and ``answers.tex`` in LaTeX, for the package booktabs.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
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
from fedsim.report.read_whole import read_whole
from fedsim.report.summary import read_summary
from fedsim.report.tables import write_table
from fedsim.report.text_table import TextTable, to_latex, to_markdown
from fedsim.scenario import load_scenario
from fedsim.studies import comparison
from fedsim.studies.answer_tables import tables, tuning_table
from fedsim.studies.answers import Answer, answers
from fedsim.studies.budgets import BUDGETS, Budget, FrontPoint, budgets, front
from fedsim.studies.comparison_plans import plan_of
from fedsim.studies.curves import Curves, read_curve
from fedsim.studies.intervals import Interval
from fedsim.studies.plan import Setting, StudyPlan, load_study
from fedsim.studies.study_columns import ANSWERS, EVALUATIONS, FRONT, TUNING
from fedsim.studies.study_lock import locked
from fedsim.studies.tuning import read_tuning

MARKDOWN = "answers.md"
LATEX = "answers.tex"
FILES = (EVALUATIONS.file, ANSWERS.file, FRONT.file, TUNING.file, MARKDOWN, LATEX)
"""All files that can be there; ``tuning.csv`` only if something is tuned."""

NOT_THERE = "it is not there: it has not ended, or has failed"

NOT_FINITE = "at its end a model, or a loss, is not finite: see its log.jsonl"

NOT_CHOSEN = "it was not run, since no values of [tune] have a trial for each seed"

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
    curves: dict[Setting, dict[int, Columns]] = {setting: {} for setting in plan.settings}
    figures: dict[Setting, list[Figures]] = {}
    summaries: dict[str, Summary] = {}
    for run in plan.runs:
        if holds_scenario(folder := parent / run.label, run.scenario_toml):
            curves[run.setting][run.seed] = read_curve(folder)
            summaries[run.label] = read_summary(folder)
            figures.setdefault(run.setting, []).append(comparison.figures(summaries[run.label]))
    compared = budgets(curves, config.at)
    rows = answers(
        curves,
        config.targets,
        config.of,
        config.baseline,
        budgets=compared,
        method=config.interval,
    )
    fronts = {bounds: front(curves, bounds, config.of) for bounds in BUDGETS}
    trials = [
        {
            "variant": setting.variant,
            "algorithm": setting.algorithm,
            **whole.values(setting, number),
            "seed": seed,
            "accuracy": score,
            "chosen": tuning.chosen.get(setting) == number,
        }
        for (setting, number), by_seed in tuning.scores.items()
        for seed, score in by_seed.items()
    ]
    grids = tables(plan, rows, fronts, compared)
    if tuning.scores:
        grids.insert(0, tuning_table(whole, tuning))
    ends = {setting: means(some) for setting, some in figures.items()}
    failed = unfinished(whole, plan, parent)
    return Answers(plan, curves, ends, summaries, compared, rows, fronts, grids, trials, failed)


def unfinished(whole: StudyPlan, chosen: StudyPlan, parent: Path) -> dict[str, str]:
    """Return the problems in the folder of a study, by labels of runs or names of settings."""
    problems = {}
    for run in (*chain.from_iterable(whole.trials.values()), *chosen.runs):
        folder = parent / run.label
        if not holds_scenario(folder, run.scenario_toml):
            problems[run.label] = NOT_THERE
        elif not read_summary(folder)["finite"]:
            problems[run.label] = NOT_FINITE
    for setting, candidates in chosen.candidates.items():
        if not candidates:
            problems[" ".join(map(str, (setting.variant, *setting.point)))] = NOT_CHOSEN
    return problems


def read_folder(folder: Path) -> Answers:
    """Return the answers of the runs that are in the folder of a study or a comparison."""
    if (folder / STUDY).is_file():
        return read_answers(load_study(folder / STUDY), folder)
    if not (folder / COMPARISON).is_file():
        raise OutputError(
            f"{folder} holds neither a study, which has a file {STUDY}, nor a comparison, which has a file "
            f"{COMPARISON}"
        )
    runs = read_whole(folder / COMPARISON, lambda file: json.loads(file.read_text("utf-8"))["runs"])
    scenarios = [load_scenario(folder / run["folder"] / "scenario.toml") for run in runs]
    return read_answers(plan_of(scenarios, _targets(folder)), folder)


def _targets(folder: Path) -> list[float]:
    """Return the targets of a comparison; none if older versions left no answers."""
    file = folder / ANSWERS.file
    if not file.is_file():
        return []

    def targets(file: Path) -> list[float]:
        with file.open(encoding="utf-8", newline="") as lines:
            return list(dict.fromkeys(float(row["target"]) for row in csv.DictReader(lines) if row["target"]))

    return read_whole(file, targets)


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
            **_identity(plan, point.setting),
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
        ({**_identity(plan, setting), "seed": seed}, curve)
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
    return [_answer_row(result.plan, result.budgets, answer) for answer in result.answers]


def _answer_row(plan: StudyPlan, compared: Sequence[Budget], answer: Answer) -> Row:
    row: Row = {
        **_identity(plan, answer.setting),
        "target": answer.target,
        "of": plan.config.of,
        "interval": plan.config.interval,
        "seeds": answer.seeds,
        "reached": None if answer.target is None else answer.reached,
    }
    for name, value in answer.figures.items():
        row |= _interval(name, value)
        if plan.config.baseline is not None:
            difference = answer.differences.get(name)
            row |= _interval(f"{name}_minus_baseline", difference)
            row[f"{name}_pairs"] = None if difference is None else difference.count
    for budget in compared:
        accuracy = answer.figures[budget.column]
        row[f"{budget.column}_seeds"] = 0 if accuracy is None else accuracy.count
        row[f"{budget.column}_ended_before"] = answer.ended_before[budget.column]
        if not budget.is_stated:
            row[f"equal_{budget.bounds}"] = budget.amount if math.isfinite(budget.amount) else None
    return row


def _identity(plan: StudyPlan, setting: Setting) -> Row:
    return {"variant": setting.variant, "algorithm": setting.algorithm, **plan.values(setting)}


def _interval(name: str, value: Interval | None) -> Row:
    if value is None:
        return {name: None, f"{name}_low": None, f"{name}_high": None}
    return {name: value.mean, f"{name}_low": value.low, f"{name}_high": value.high}
