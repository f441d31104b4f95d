"""Several runs of one scenario side by side: a table for people, CSV and JSON for programs.

With one seed an algorithm's accuracy is shown as the mean over clients and the standard deviation over
clients. With several seeds every figure is the mean over seeds, and accuracy is shown with its standard
deviation over seeds instead. Where there is no accuracy, as in a regression, the loss is shown in its place.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsim import __version__
from fedsim.report import cost_breakdown, number_format
from fedsim.report.columns import csv_of
from fedsim.report.cost_breakdown import Figures, Summary, by_algorithm, measured
from fedsim.report.places import run_name
from fedsim.report.read_results import to_json
from fedsim.report.run_columns import COMPARISON
from fedsim.report.text_table import TextTable
from fedsim.studies.intervals import interval, is_best

BEST = "*"
"""Marks the best value of a column."""

MAX_NAMED = 6
"""Runs that have diverged that are named at most."""

CAUSES = ("drops_by_cause_", "rejected_by_reason_", "faults_")
"""Prefixes of columns that count by cause."""

HIGHER_IS_BETTER = frozenset({"accuracy", "worst_decile", "global"})


@dataclass(frozen=True, slots=True)
class Row:
    """One algorithm, with the values of each figure over the seeds that have it."""

    algorithm: str
    seeds: tuple[int, ...]
    values: Mapping[str, Sequence[float]]

    def mean(self, name: str) -> float | None:
        """Return the mean of a figure; None where no seed has it."""
        return statistics.fmean(self.values[name]) if self.values[name] else None

    def std(self, name: str) -> float | None:
        """Return its sample standard deviation; None where fewer than two seeds have it."""
        return statistics.stdev(self.values[name]) if len(self.values[name]) > 1 else None


def compared_figures(summary: Summary) -> Figures:
    """Return what is compared; bytes include those of raw samples, since all of them have to be sent."""
    accuracy, loss = summary["accuracy"], summary["loss"]
    up, down = summary["bytes_up"] + summary["data_up"], summary["bytes_down"] + summary["data_down"]
    return {
        "accuracy": accuracy["personal_mean"],
        "accuracy_std": accuracy["personal_std"],
        "worst_decile": accuracy["personal_worst_decile"],
        "global": accuracy["global"],
        "loss": loss["personal_mean"],
        "loss_std": loss["personal_std"],
        "global_loss": loss["global"],
        "simulated_s": summary["simulated_s"],
        "bytes_up": up,
        "bytes_down": down,
        "bytes": up + down,
        "parameters": summary["parameters_up"] + summary["parameters_down"],
        "drops": summary["drops"],
        **cost_breakdown.cost_figures(summary),
    }


def rows(summaries: Sequence[Summary]) -> list[Row]:
    """Return a row for each algorithm, in the order of first appearance."""
    return [
        Row(algorithm, tuple(run["seed"] for run in runs), measured([compared_figures(run) for run in runs]))
        for algorithm, runs in by_algorithm(summaries).items()
    ]


def table(summaries: Sequence[Summary], *, is_compared: bool = True) -> TextTable:
    """Return the table for people; it fits in 100 columns. Of a run alone no traffic is relative."""
    compared = rows(summaries)
    most = max(len(row.seeds) for row in compared)
    several = most > 1
    # Of a regression there are losses alone.
    by_loss = any(row.values["loss"] for row in compared) and not any(
        row.values["accuracy"] for row in compared
    )
    largest = max(row.mean("bytes") or 0 for row in compared)

    def cell(name: str, show: Callable[..., str], *, spread: bool = False) -> Callable[[Row], str]:
        values = {row.algorithm: interval(row.values[name]) for row in compared}
        every, highest = list(values.values()), name in HIGHER_IS_BETTER

        def shown(row: Row) -> str:
            std = row.std(name) if several else row.mean(f"{name}_std") if spread else None
            mean = row.mean(name)
            mark = BEST if is_best(values[row.algorithm], every, most, highest=highest) else ""
            return (show(mean, std) if spread else show(mean)) + mark

        return shown

    # The costs are those of whole runs, whatever accuracy they reached, so none of them is the best.
    def cost(name: str, show: Callable[..., str]) -> Callable[[Row], str]:
        return lambda row: show(row.mean(name))

    by_accuracy = {
        "accuracy\n%": cell("accuracy", number_format.percent, spread=True),
        "worst\n10 %": cell("worst_decile", number_format.percent),
        "global\n%": cell("global", number_format.percent),
    }
    losses = {
        "loss": cell("loss", number_format.number, spread=True),
        "global\nloss": cell("global_loss", number_format.number),
    }
    columns: dict[str, Callable[[Row], str]] = {
        "algorithm": lambda row: row.algorithm,
        **(losses if by_loss else by_accuracy),
        "simulated\ntime": cost("simulated_s", number_format.duration),
        "bytes\nup": cost("bytes_up", number_format.size),
        "bytes\ndown": cost("bytes_down", number_format.size),
        "relative\ntraffic": lambda row: number_format.fraction(row.mean("bytes") or 0, largest),
        "parameters\nsent": cost("parameters", number_format.count),
        "drops": cost("drops", number_format.count),
    }
    if not is_compared:
        del columns["relative\ntraffic"]
    spread = "seeds" if several else "clients"
    notes = [f"{'loss' if by_loss else 'accuracy'}: mean over clients ± standard deviation over {spread}"]
    more = [] if by_loss else ["worst 10 %: mean over the 10 % least accurate clients"]
    more += ["relative traffic: bytes / largest"] if is_compared else []
    notes += ["; ".join(more)] if more else []
    if several:
        notes.append("every figure is a mean over seeds")
    grid = TextTable.of(compared, columns, notes=notes)
    if any(shown.endswith(BEST) for row in grid.rows for shown in row):
        notes.append(f"{BEST} best in its column")
    notes += diverged_note({run_name(one["algorithm"], one["seed"]): one for one in summaries})
    return grid


def diverged_note(summaries: Mapping[str, Summary]) -> list[str]:
    """Return a note that names the runs that have diverged, if there are any."""
    names = [name for name, summary in summaries.items() if summary.get("divergence")]
    if more := len(names[MAX_NAMED:]):
        names[MAX_NAMED:] = [f"{more} more"]
    return [f"diverged, as summary.json says: {', '.join(names)}"] if names else []


def to_csv(summaries: Sequence[Summary]) -> bytes:
    """Return one line per run: the columns of :data:`fedsim.report.run_columns.COMPARISON`."""
    return csv_of(COMPARISON, flat_rows(summaries))


def to_document(scenario: str, summaries: Mapping[Path, Summary], parent: Path) -> bytes:
    """Return ``comparison.json``: algorithms with figures over seeds, and each run's summary."""
    algorithms = [
        {
            "algorithm": row.algorithm,
            "seeds": list(row.seeds),
            **{name: {"mean": row.mean(name), "std": row.std(name)} for name in row.values},
        }
        for row in rows(list(summaries.values()))
    ]
    runs = [{"folder": str(folder.relative_to(parent)), **summary} for folder, summary in summaries.items()]
    return to_json({"fedsim": __version__, "scenario": scenario, "algorithms": algorithms, "runs": runs})


def flat_rows(summaries: Sequence[Summary]) -> list[dict[str, Any]]:
    """Return a row for each run, as :func:`flat` does, all with the same names."""
    lines = [flat(summary) for summary in summaries]
    # Where a cause of drops or of rejections is missing in a line, there was none. Other names are missing in
    # runs of earlier versions: nothing is known of them.
    names = {name: 0 if name.startswith(CAUSES) else None for line in lines for name in line}
    return [names | line for line in lines]


def flat(summary: Summary) -> dict[str, Any]:
    """Return a summary with the parts of its tables beside the rest, named as ``time_wasted_s`` is.

    A list is written with spaces.
    """
    flat: dict[str, Any] = {}
    for name, value in summary.items():
        if isinstance(value, dict):
            for part, inner in value.items():
                flat[f"{name}_{part}"] = " ".join(map(str, inner)) if isinstance(inner, list) else inner
        else:
            flat[name] = value
    return flat
