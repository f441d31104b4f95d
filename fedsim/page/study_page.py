"""The page of a study or a comparison, from its folder, even where some of its runs have not ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fedsim.figures.study_figures import left_out, study_sections
from fedsim.page.page import Page, named
from fedsim.page.run_page import read_remarks
from fedsim.report import cost_breakdown, number_format
from fedsim.report.cost_breakdown import Summary
from fedsim.report.read_whole import read_whole
from fedsim.report.text_table import Pairs, TextTable
from fedsim.studies import comparison
from fedsim.studies.answer_files import Answers, read_folder
from fedsim.studies.answer_sentence import answer_sentence
from fedsim.studies.variant_params import params_facts

MOST_REMARKS = 6
"""Remarks on single runs that are shown."""

HASH_DIGITS = 12
"""Digits of a hash that tell runs apart."""


def study_page(folder: Path) -> Page:
    """Return the page of a study or a comparison.

    Raises:
        OutputError: A file is not there, or damaged.
        ScenarioError: Its scenarios are not valid here.
    """
    found = read_folder(folder)
    summaries = found.summaries
    tables = read_whole(folder, lambda _: _tables(found))
    answer, *others = named(tables)
    return Page(
        found.plan.name,
        found.plan.kind,
        answer_sentence(found),
        answer,
        _remarks(folder, found, summaries),
        read_whole(folder, lambda place: study_sections(found, place)),
        others,
        _facts(found, list(summaries.values())),
    )


def _tables(found: Answers) -> list[TextTable]:
    """Return the tables; the first is the one that answers."""
    answers = sorted(found.tables, key=lambda table: not table.title.startswith("to reach"))
    runs = list(found.summaries.values())
    is_compared = runs and found.plan.kind == "comparison"
    compared = [comparison.table(runs), cost_breakdown.table(runs)] if is_compared else []
    first = [table for table in answers[:1] if table.title.startswith("to reach")]
    return [*first, *compared, *answers[len(first) :], _runs(found.summaries)]


def _runs(summaries: Mapping[str, Summary]) -> TextTable:
    columns = {
        "run": lambda run: run[0],
        "rounds": lambda run: str(run[1]["rounds"]),
        "simulated time": lambda run: number_format.duration(run[1]["simulated_s"]),
        "wall time": lambda run: number_format.duration(run[1]["wall_s"]),
        "fedsim": lambda run: run[1]["fedsim"],
        "trace hash": lambda run: run[1]["trace_hash"][:HASH_DIGITS],
        "model hash": lambda run: run[1]["model_hash"][:HASH_DIGITS],
    }
    return TextTable.of(
        summaries.items(),
        columns,
        notes=[f"hashes: the first {HASH_DIGITS} digits"],
        text_columns=frozenset({0, 4, 5, 6}),
        title="runs",
    )


def _remarks(folder: Path, found: Answers, summaries: Mapping[str, Summary]) -> list[str]:
    said = [f"{label}: {why}" for label, why in found.failed.items()]
    for label, lacking in left_out(found, folder).items():
        said.append(f"{label}: not shown client by client, since {lacking}")
    by_remark: dict[str, list[str]] = {}
    for label in summaries:
        for remark in read_remarks(folder / label):
            by_remark.setdefault(remark, []).append(label)
    said += [f"{_several(labels)}: {remark}" for remark, labels in by_remark.items()]
    return [*said[:MOST_REMARKS], *([f"{len(said) - MOST_REMARKS} more"] if said[MOST_REMARKS:] else [])]


def _several(labels: Sequence[str]) -> str:
    return labels[0] if len(labels) == 1 else f"{labels[0]} and {len(labels) - 1} more"


def _facts(found: Answers, runs: Sequence[Summary]) -> Pairs:
    variants = dict.fromkeys(setting.variant for setting in found.plan.settings)
    seeds = dict.fromkeys(str(run.seed) for run in found.plan.runs)
    facts = [
        ("variants", ", ".join(variants)),
        ("seeds", ", ".join(seeds)),
        ("runs", f"{len(runs)} of {len(found.plan.runs)} have ended"),
        ("fedsim", ", ".join(dict.fromkeys(run["fedsim"] for run in runs))),
    ]
    if found.plan.grid:
        facts.insert(1, ("grid", ", ".join(found.plan.grid)))
    if found.plan.tuned:
        facts.insert(1, ("tuned", ", ".join(found.plan.tuned)))
    return [*facts, *params_facts(found.plan)]
