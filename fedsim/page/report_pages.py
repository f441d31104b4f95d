"""The report pages of runs, studies, comparisons and validations, from their folders."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedsim import toml_writer
from fedsim.figures.run_figures import run_sections
from fedsim.figures.study_figures import study_sections
from fedsim.figures.validation_figures import validation_sections
from fedsim.page.page_content import Page, named
from fedsim.report import cost_breakdown, number_format, run_text, validation
from fedsim.report.atomic_folder import MARK
from fedsim.report.cost_breakdown import Summary
from fedsim.report.read_results import read_checked, read_provenance
from fedsim.report.summary import read_summary
from fedsim.report.text_table import Pairs, TextTable
from fedsim.studies import comparison
from fedsim.studies.answer_files import Answers, read_folder
from fedsim.studies.answer_sentence import answer_sentence
from fedsim.studies.variant_params import params_facts, params_line

MAX_REMARKS = 6
"""Remarks on single runs of a study that are shown."""

HASH_DIGITS = 12
"""Digits of a hash that tell runs apart."""


def run_page(folder: Path, rounds: tuple[int, int] | None = None) -> Page:
    """Return the page of a run; ``rounds`` are the first and the last that are shown client by client."""
    summary = read_summary(folder)
    provenance = read_provenance(folder)
    sections = read_checked(folder, lambda place: run_sections(place, rounds))

    def page(summary: Summary) -> Page:
        passed = run_text.SIMULATED if provenance["bus"] == "memory" else run_text.PASSED
        compared = comparison.table([summary], is_compared=False)
        answer, *tables = named([compared, cost_breakdown.table([summary])])
        return Page(
            run_text.title(summary),
            "run",
            run_text.run_sentence(summary, passed),
            answer,
            read_remarks(folder),
            sections,
            tables,
            [
                *run_text.pairs(summary, passed),
                *cost_breakdown.lines(summary),
                ("parameters", read_checked(folder / "scenario.toml", _params)),
                *_provenance(provenance),
                ("trace hash", summary["trace_hash"]),
                ("model hash", summary["model_hash"]),
            ],
        )

    return read_checked(folder / MARK, lambda file: page(summary))


def validation_page(folder: Path) -> Page:
    """Return the page of a validation."""
    found = validation.read(folder)
    answer, *others = named(validation.tables(found))
    return Page(
        folder.resolve().name,
        "validation",
        validation.sentence(found),
        answer,
        list(validation.remarks(found)),
        validation_sections(found),
        others,
        [("fedsim", read_summary(folder / run)["fedsim"]) for run in validation.runs(folder)[:1]],
    )


def read_remarks(folder: Path) -> list[str]:
    """Return the remarks in the log of a run: on times, rejections, divergence, and what is not finite."""

    def remarks(file: Path) -> Iterator[str]:
        for line in file.read_text("utf-8").splitlines():
            entry = json.loads(line)
            if entry["event"] in ("simulated time", "rejections", "divergence"):
                yield entry["remark"]
            elif entry["event"] == "not finite":
                yield f"not finite: {entry['cause']}"

    return read_checked(folder / "log.jsonl", lambda file: list(remarks(file)))


def _params(file: Path) -> str:
    params = tomllib.loads(file.read_text("utf-8"))["algorithm"]["params"]
    return params_line({name: toml_writer.value(value) for name, value in params.items()})


def _provenance(host: dict[str, Any]) -> Pairs:
    model = host.get("server_model")
    return [
        *([("server's model", f"{model['label']}, {model['parameters']:,} parameters")] if model else []),
        (
            "fedsim",
            f"{host['fedsim']}, with torch {host['libraries']['torch']} on {host['device']}",
        ),
        ("began", f"{host['started_at']}, {host['platform']}"),
    ]


def study_page(folder: Path) -> Page:
    """Return the page of a study or a comparison, even if some of its runs have not ended."""
    answers = read_folder(folder)
    tables = read_checked(folder, lambda _: _tables(answers))
    answer, *others = named(tables)
    return Page(
        answers.plan.name,
        answers.plan.kind,
        answer_sentence(answers),
        answer,
        _remarks(folder, answers),
        read_checked(folder, lambda place: study_sections(answers, place)),
        others,
        _facts(answers),
    )


def _tables(answers: Answers) -> list[TextTable]:
    """Return the tables; the first is the one that answers."""
    tables = sorted(answers.tables, key=lambda table: not table.title.startswith("to reach"))
    runs = list(answers.summaries.values())
    is_compared = runs and answers.plan.kind == "comparison"
    compared = [comparison.table(runs), cost_breakdown.table(runs)] if is_compared else []
    first = [table for table in tables[:1] if table.title.startswith("to reach")]
    return [*first, *compared, *tables[len(first) :], _runs(answers.summaries)]


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


def _remarks(folder: Path, answers: Answers) -> list[str]:
    remarks = [f"{label}: {why}" for label, why in answers.failed.items()]
    by_remark: dict[str, list[str]] = {}
    for label in answers.summaries:
        for remark in read_remarks(folder / label):
            by_remark.setdefault(remark, []).append(label)
    remarks += [f"{_several(labels)}: {remark}" for remark, labels in by_remark.items()]
    more = len(remarks) - MAX_REMARKS
    return [*remarks[:MAX_REMARKS], *([f"{more} more"] if more > 0 else [])]


def _several(labels: Sequence[str]) -> str:
    return labels[0] if len(labels) == 1 else f"{labels[0]} and {len(labels) - 1} more"


def _facts(answers: Answers) -> Pairs:
    runs = answers.summaries.values()
    variants = dict.fromkeys(setting.variant for setting in answers.plan.settings)
    seeds = dict.fromkeys(str(run.seed) for run in answers.plan.runs)
    facts = [
        ("variants", ", ".join(variants)),
        ("seeds", ", ".join(seeds)),
        ("runs", f"{len(runs)} of {len(answers.plan.runs)} have ended"),
        ("fedsim", ", ".join(dict.fromkeys(run["fedsim"] for run in runs))),
    ]
    if answers.plan.grid:
        facts.insert(1, ("grid", ", ".join(answers.plan.grid)))
    if answers.plan.tuned:
        facts.insert(1, ("tuned", ", ".join(answers.plan.tuned)))
    return [*facts, *params_facts(answers.plan)]
