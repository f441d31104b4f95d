"""Where time and bytes went: sums over dispatches, for the summary, for the tables, and for people.

Time is client time: virtual seconds in each phase of each dispatch, summed. (``dispatch_table.py`` says what
the phases are.) Work is all of it but being away and waiting. Work and bytes are *wasted* where the reply was
not merged, be it dropped, rejected, late or still open at the end; bytes also where the frame itself was lost
on its way, though another took its place. Bytes here are those of frames, raw samples included; protocol
overhead stands apart.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fedsim.params import Array
from fedsim.report import text
from fedsim.report.text_table import TextTable
from fedsim.runtime.records.dispatch_table import PHASES, Fate
from fedsim.runtime.records.result import RoundRow
from fedsim.runtime.run import RunResult

Summary = dict[str, Any]
Columns = dict[str, tuple[str, Any]]

TITLE = "where time and bytes went"
SHOWN = tuple(phase for phase in PHASES if phase != "away")
"""The phases that are always told; time away only where there is any."""


def breakdown(result: RunResult) -> dict[str, Any]:
    """Return what the summary says of a run: ``time``, ``bytes``, ``drops_by_cause``, ``participation``."""
    dispatches, totals = result.dispatches, result.totals
    time_ns: dict[str, int] = {phase: int(dispatches.phase_ns(phase).sum()) for phase in PHASES}
    time_ns["wasted"] = int(_wasted_ns(result).sum())
    frames = result.ledger.columns()
    return {
        "time": {f"{name}_s": spent / 1e9 for name, spent in time_ns.items()},
        "bytes": {
            "payload_up": totals.bytes_up + totals.data_up,
            "payload_down": totals.bytes_down + totals.data_down,
            "overhead_up": totals.overhead_up,
            "overhead_down": totals.overhead_down,
            "wasted": int(_wasted_bytes(result, frames).sum()),
        },
        "drops_by_cause": {cause: result.drops[cause] for cause in sorted(result.drops)},
        "participation": {
            **{name: int(tally.sum()) for name, tally in result.by_client.items()},
            "clients_asked": int(np.count_nonzero(result.by_client["asked"])),
            "clients_merged": int(np.count_nonzero(result.by_client["merged"])),
        },
    }


def by_round(result: RunResult) -> Columns:
    """Return sums over the dispatches of each round as columns; drops by cause are those during it.

    Work counts in the round in which the server asked for it, whenever it ends.
    """
    numbers = np.array([row.round for row in result.rounds], np.int64)
    if not len(numbers):
        return {}

    def place(of_round: Array) -> Array:
        return np.minimum(np.searchsorted(numbers, of_round), len(numbers) - 1)

    frames = result.ledger.columns()
    sums = _sums(result, frames, place(result.dispatches.round()), place(frames["round"]), len(numbers))
    return sums | _drops_by_round(result.rounds)


def by_client(result: RunResult, population: int) -> Columns:
    """Return sums over the dispatches of each client as columns."""
    client, frames = result.dispatches.client(), result.ledger.columns()
    drops = {
        _column(cause): ("int32", np.bincount(client[dropped], minlength=population))
        for cause, dropped in result.dispatches.causes().items()
    }
    return _sums(result, frames, client, frames["client"], population) | drops


def table(summaries: Sequence[Summary]) -> TextTable:
    """Return the table for people, a row for each algorithm with means over its seeds; 100 columns wide.

    Time away stands in a note where there is any, as it would make the table too wide.
    """
    rows, notes = [], []
    for algorithm, runs in by_algorithm(summaries).items():
        figures = {**FIGURES, "wasted_work": wasted_work, "wasted_payload": wasted_payload}
        means = {name: mean(map(figure, runs)) for name, figure in figures.items()}
        rows.append(
            (
                algorithm,
                *(text.duration(means[f"{phase}_s"]) for phase in SHOWN),
                text.percent(means["wasted_work"]),
                text.size(means["payload_bytes"]),
                text.size(means["overhead_bytes"]),
                text.percent(means["wasted_payload"]),
            )
        )
        if away_s := means["away_s"]:
            notes.append(f"pauses during work, {algorithm}: {text.duration(away_s)}")
        causes = sorted({cause for one in runs for cause in one["drops_by_cause"]})
        if causes:
            counts = [
                sum(one["drops_by_cause"].get(cause, 0) for one in runs) / len(runs) for cause in causes
            ]
            listed = ", ".join(
                f"{cause} {text.count(number)}" for cause, number in zip(causes, counts, strict=True)
            )
            notes.append(f"drops of {algorithm}: {listed}")
    headings = ("algorithm", *SHOWN, "wasted\nwork %", "payload", "overhead", "wasted\nbytes %")
    return TextTable(headings, rows, [*EXPLANATION, *notes], title=TITLE)


def by_algorithm(summaries: Sequence[Summary]) -> dict[str, list[Summary]]:
    """Return the summaries of each algorithm, in the order of first appearance."""
    found: dict[str, list[Summary]] = {}
    for summary in summaries:
        found.setdefault(summary["algorithm"], []).append(summary)
    return found


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are there; None where there are none."""
    present = [value for value in values if value is not None]
    return statistics.fmean(present) if present else None


def lines(summary: Summary) -> list[tuple[str, str]]:
    """Return the same of one run as names and words."""
    time, num_bytes, part = summary["time"], summary["bytes"], summary["participation"]
    spent = ", ".join(
        f"{text.duration(time[f'{phase}_s'])} {phase}" for phase in PHASES if phase in SHOWN or time["away_s"]
    )
    outcomes = ", ".join(f"{name} {part[name]}" for name in ("merged", "dropped", "rejected", "late"))
    work, sent = text.percent(wasted_work(summary)), text.percent(wasted_payload(summary))
    result = [
        ("client time", spent),
        ("wasted", f"{work} % of the work, {sent} % of the bytes"),
        ("payload", f"{text.size(num_bytes['payload_up'])} up, {text.size(num_bytes['payload_down'])} down"),
        (
            "overhead",
            f"{text.size(num_bytes['overhead_up'])} up, {text.size(num_bytes['overhead_down'])} down",
        ),
    ]
    clients = f"{part['clients_asked']} of {text.several(summary['clients'], 'client')}"
    result.append(("dispatches", f"{part['asked']} to {clients}: {outcomes}"))
    return result


def wasted_work(summary: Summary) -> float | None:
    """Return the share of work whose reply was not merged; None where nobody worked."""
    time = summary["time"]
    work_s: float = time["download_s"] + time["compute_s"] + time["upload_s"]
    return time["wasted_s"] / work_s if work_s else None


def wasted_payload(summary: Summary) -> float | None:
    """Return the share of bytes sent in vain; None where none were sent."""
    num_bytes = summary["bytes"]
    payload: int = num_bytes["payload_up"] + num_bytes["payload_down"]
    return num_bytes["wasted"] / payload if payload else None


FIGURES: Mapping[str, Callable[[Summary], float | None]] = {
    "download_s": lambda s: s["time"]["download_s"],
    "compute_s": lambda s: s["time"]["compute_s"],
    "upload_s": lambda s: s["time"]["upload_s"],
    "away_s": lambda s: s["time"]["away_s"],
    "waiting_s": lambda s: s["time"]["waiting_s"],
    "wasted_s": lambda s: s["time"]["wasted_s"],
    "payload_bytes": lambda s: s["bytes"]["payload_up"] + s["bytes"]["payload_down"],
    "overhead_bytes": lambda s: s["bytes"]["overhead_up"] + s["bytes"]["overhead_down"],
    "wasted_bytes": lambda s: s["bytes"]["wasted"],
}
"""What is compared, beside the figures of :mod:`fedsim.report.comparison`."""

EXPLANATION = (
    "times: virtual time, summed over clients; pauses during work are left out",
    "wasted: for replies that were not merged and frames that were lost; payload: frames, up and down",
)


def _sums(
    result: RunResult, frames: Mapping[str, Array], of_dispatch: Array, of_frame: Array, groups: int
) -> Columns:
    """Return sums over groups, given the group of each dispatch and of each frame."""

    def summed(index: Array, values: Array) -> Array:
        total = np.zeros(groups, np.int64)
        np.add.at(total, index, values)
        return total

    spent = {f"{phase}_s": result.dispatches.phase_ns(phase) for phase in PHASES}
    spent["wasted_s"] = _wasted_ns(result)
    return {
        **{name: ("double", summed(of_dispatch, values) / 1e9) for name, values in spent.items()},
        "wasted_bytes": ("int64", summed(of_frame, _wasted_bytes(result, frames))),
    }


def _wasted_ns(result: RunResult) -> Array:
    dispatches = result.dispatches
    return np.where(dispatches.fate() == Fate.MERGED, 0, dispatches.work_ns())


def _wasted_bytes(result: RunResult, frames: Mapping[str, Array]) -> Array:
    """Return how many bytes of each frame were sent in vain: all or none."""
    rows = result.dispatches.rows_of(frames["client"], frames["dispatch"])
    useful = (frames["outcome"] == "delivered") & (result.dispatches.fate()[rows] == Fate.MERGED)
    return np.where(useful, 0, frames["bytes"])


def _drops_by_round(rows: Sequence[RoundRow]) -> Columns:
    causes = sorted({cause for row in rows for cause in row.drops})
    return {_column(cause): ("int32", [row.drops.get(cause, 0) for row in rows]) for cause in causes}


def _column(cause: str) -> str:
    return "dropped_" + re.sub(r"\W+", "_", cause)
