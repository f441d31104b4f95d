"""The report page of a run, from its folder."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedsim import toml
from fedsim.figures.run_figures import run_sections
from fedsim.page.page import Page, named
from fedsim.report import comparison, cost_breakdown, run_text
from fedsim.report.atomic_folder import MARK
from fedsim.report.cost_breakdown import Summary
from fedsim.report.read_provenance import read_provenance
from fedsim.report.read_whole import read_whole
from fedsim.report.summary import read_summary
from fedsim.report.text_table import Pairs, TextTable
from fedsim.studies.variant_params import params_line

RELATIVE = "relative\ntraffic"
"""The column that compares the traffic of runs."""


def run_page(folder: Path, rounds: tuple[int, int] | None = None) -> Page:
    """Return the page of a run; ``rounds`` are the first and the last that are shown client by client."""
    summary = read_summary(folder)
    provenance = read_provenance(folder)
    sections = read_whole(folder, lambda place: run_sections(place, rounds))

    def page(summary: Summary) -> Page:
        passed = run_text.SIMULATED if provenance["bus"] == "memory" else run_text.PASSED
        answer, *tables = named([_alone(comparison.table([summary])), cost_breakdown.table([summary])])
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
                ("parameters", read_whole(folder / "scenario.toml", _params)),
                *_provenance(provenance),
                ("trace hash", summary["trace_hash"]),
                ("model hash", summary["model_hash"]),
            ],
        )

    return read_whole(folder / MARK, lambda file: page(summary))


def read_remarks(folder: Path) -> list[str]:
    """Return the remarks in the log of a run: on times, rejections and values that are not finite."""

    def remarks(file: Path) -> Iterator[str]:
        for line in file.read_text("utf-8").splitlines():
            entry = json.loads(line)
            if entry["event"] in ("simulated time", "rejections"):
                yield entry["remark"]
            elif entry["event"] == "not finite":
                yield f"not finite: {entry['cause']}"

    return read_whole(folder / "log.jsonl", lambda file: list(remarks(file)))


def _alone(table: TextTable) -> TextTable:
    """Return the table of a comparison without what compares its rows."""
    kept = [column for column, heading in enumerate(table.headings) if heading != RELATIVE]
    notes = [note.partition(f"; {RELATIVE.replace(chr(10), ' ')}")[0] for note in table.notes]
    return replace(
        table,
        headings=[table.headings[column] for column in kept],
        rows=[[row[column] for column in kept] for row in table.rows],
        notes=[note for note in notes if note],
    )


def _params(file: Path) -> str:
    params = tomllib.loads(file.read_text("utf-8"))["algorithm"]["params"]
    return params_line({name: toml.value(value) for name, value in params.items()})


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
