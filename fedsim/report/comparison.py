"""Several runs of one scenario side by side: a table for people, CSV and JSON for programs.

With one seed an algorithm's accuracy is shown as the mean over clients and the standard deviation over
clients. With several seeds every figure is the mean over seeds, and accuracy is shown with its standard
deviation over seeds instead. Where there is no accuracy, as in a regression, the loss is shown in its place.
"""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsim import __version__
from fedsim.report import cost_breakdown, text
from fedsim.report.cost_breakdown import Summary, by_algorithm, mean
from fedsim.report.summary import to_json
from fedsim.report.text_table import TextTable

BEST = "*"
"""Marks the best value of a column."""


@dataclass(frozen=True, slots=True)
class Spread:
    """One figure of one algorithm over its seeds.

    Attributes:
        mean: Mean over seeds; None where no seed has it.
        std: Sample standard deviation over seeds; None where fewer than two seeds have it.
    """

    mean: float | None
    std: float | None

    @classmethod
    def of(cls, values: Sequence[float | None]) -> Spread:
        """Return the spread of the values that are there."""
        present = [value for value in values if value is not None]
        return cls(mean(present), statistics.stdev(present) if len(present) > 1 else None)


FIGURES: Mapping[str, Callable[[Summary], float | None]] = {
    "accuracy": lambda s: s["accuracy"]["personal_mean"],
    "accuracy_std": lambda s: s["accuracy"]["personal_std"],
    "worst_decile": lambda s: s["accuracy"]["personal_worst_decile"],
    "global": lambda s: s["accuracy"]["global"],
    "loss": lambda s: s["loss"]["personal_mean"],
    "loss_std": lambda s: s["loss"]["personal_std"],
    "global_loss": lambda s: s["loss"]["global"],
    "simulated_s": lambda s: s["simulated_s"],
    "bytes_up": lambda s: s["bytes_up"] + s["data_up"],
    "bytes_down": lambda s: s["bytes_down"] + s["data_down"],
    "bytes": lambda s: s["bytes_up"] + s["data_up"] + s["bytes_down"] + s["data_down"],
    "parameters": lambda s: s["parameters_up"] + s["parameters_down"],
    "drops": lambda s: s["drops"],
}
"""The figures that are compared; bytes include those of raw samples, since all of them have to be sent."""

HIGHER_IS_BETTER = frozenset({"accuracy", "worst_decile", "global"})


@dataclass(frozen=True, slots=True)
class Row:
    """One algorithm.

    Attributes:
        algorithm: Its name.
        seeds: The seeds that it ran with.
        figures: Its figures, by the names of :data:`FIGURES` and of ``cost_breakdown.FIGURES``.
    """

    algorithm: str
    seeds: tuple[int, ...]
    figures: Mapping[str, Spread]

    def mean(self, figure: str) -> float | None:
        """Return a figure's mean over seeds."""
        return self.figures[figure].mean


def rows(summaries: Sequence[Summary]) -> list[Row]:
    """Return a row for each algorithm, in the order of first appearance."""
    figures = {**FIGURES, **cost_breakdown.FIGURES}
    return [
        Row(
            algorithm,
            tuple(one["seed"] for one in runs),
            {name: Spread.of([figure(one) for one in runs]) for name, figure in figures.items()},
        )
        for algorithm, runs in by_algorithm(summaries).items()
    ]


def table(summaries: Sequence[Summary]) -> TextTable:
    """Return the table for people; it fits in 100 columns."""
    compared = rows(summaries)
    several = any(len(row.seeds) > 1 for row in compared)
    spread = "seeds" if several else "clients"
    largest = max(row.mean("bytes") or 0 for row in compared)
    best = {name: _best(compared, name) for name in FIGURES}

    def cell(row: Row, name: str, show: Callable[[float | None], str]) -> str:
        mean = row.mean(name)
        return show(mean) + (BEST if mean is not None and mean == best[name] else "")

    # Of a regression there are losses alone.
    by_loss = all(row.mean("accuracy") is None for row in compared) and any(
        row.mean("loss") is not None for row in compared
    )

    def spread_of(row: Row, name: str, show: Callable[[float | None, float | None], str]) -> str:
        std = row.figures[name].std if several else row.mean(f"{name}_std")
        return cell(row, name, lambda mean: show(mean, std))

    def quality(row: Row) -> tuple[str, ...]:
        if by_loss:
            return spread_of(row, "loss", text.number), cell(row, "global_loss", text.number)
        return (
            spread_of(row, "accuracy", text.percent),
            cell(row, "worst_decile", text.percent),
            cell(row, "global", text.percent),
        )

    cells = [
        (
            row.algorithm,
            *quality(row),
            cell(row, "simulated_s", text.duration),
            cell(row, "bytes_up", text.size),
            cell(row, "bytes_down", text.size),
            text.fraction(row.mean("bytes") or 0, largest),
            cell(row, "parameters", text.count),
            text.count(row.mean("drops")),
        )
        for row in compared
    ]
    headings = (
        "algorithm",
        *(("loss", "global\nloss") if by_loss else ("accuracy\n%", "worst\n10 %", "global\n%")),
        "simulated\ntime",
        "bytes\nup",
        "bytes\ndown",
        "relative\ntraffic",
        "parameters\nsent",
        "drops",
    )
    notes = [f"{'loss' if by_loss else 'accuracy'}: mean over clients ± standard deviation over {spread}"]
    worst = "" if by_loss else "worst 10 %: mean over the 10 % least accurate clients; "
    notes.append(f"{worst}relative traffic: bytes / largest")
    if several:
        notes.append("every figure is a mean over seeds")
    if any(best[name] is not None for name in FIGURES):
        notes.append(f"{BEST} best in its column")
    return TextTable(headings, cells, notes)


def to_csv(summaries: Sequence[Summary]) -> bytes:
    """Return one line per run: the summary, with accuracy's parts as ``accuracy_*``; empty: not measured.

    Likewise ``loss_*``, ``ineligible_*``, ``time_*``, ``bytes_*``, ``drops_by_cause_*`` and
    ``participation_*``; a list is written with spaces.
    """
    lines = [_flat(summary) for summary in summaries]
    sink = io.StringIO()
    names = list(dict.fromkeys(name for line in lines for name in line))
    # Only causes of drops are not in every line: where one is missing, nothing was dropped by it.
    writer = csv.DictWriter(sink, names, restval=0, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return sink.getvalue().encode()


def to_document(scenario: str, summaries: Sequence[Summary], folders: Sequence[Path], parent: Path) -> bytes:
    """Return ``comparison.json``: algorithms with their figures over seeds, and the summary of every run.

    Args:
        scenario: The scenario's name.
        summaries: One for each run.
        folders: Where they are.
        parent: What folders are named relative to.
    """
    algorithms = [
        {
            "algorithm": row.algorithm,
            "seeds": list(row.seeds),
            **{name: {"mean": figure.mean, "std": figure.std} for name, figure in row.figures.items()},
        }
        for row in rows(summaries)
    ]
    runs = [
        {"folder": str(folder.relative_to(parent)), **summary}
        for folder, summary in zip(folders, summaries, strict=True)
    ]
    return to_json({"fedsim": __version__, "scenario": scenario, "algorithms": algorithms, "runs": runs})


def _best(compared: Sequence[Row], name: str) -> float | None:
    """Return the best mean of a figure; None where nothing tells the algorithms apart."""
    means = [mean for row in compared if (mean := row.mean(name)) is not None]
    if len(set(means)) < 2:
        return None
    return max(means) if name in HIGHER_IS_BETTER else min(means)


def _flat(summary: Summary) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in summary.items():
        if isinstance(value, dict):
            flat |= {f"{name}_{part}": _plain(inner) for part, inner in value.items()}
        else:
            flat[name] = value
    return flat


def _plain(value: Any) -> Any:
    return " ".join(map(str, value)) if isinstance(value, list) else value
