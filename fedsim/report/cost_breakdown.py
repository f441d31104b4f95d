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
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim.params import Array
from fedsim.report import merge_statistics, number_format
from fedsim.report.text_table import TextTable
from fedsim.runtime.records.dispatch_phases import PHASES
from fedsim.runtime.records.dispatch_rows import Fate
from fedsim.runtime.run import RunResult

if TYPE_CHECKING:
    from fedsim.report.energy import Energy

Summary = dict[str, Any]
Columns = Mapping[str, Array]
"""Arrays of one length by the names of their columns; words are objects."""

Figures = Mapping[str, float | None]
"""Numbers of one run by name; None for what was not measured."""

TITLE = "where time and bytes went"
SHOWN = tuple(phase for phase in PHASES if phase != "away")
"""The phases that are always shown; time away only if there is any."""

EXPLANATION = (
    "times: virtual time, summed over clients; pauses during work are left out",
    "wasted: for replies that were not merged and frames that were lost; payload: frames, up and down",
)


def breakdown(result: RunResult) -> dict[str, Any]:
    """Return what the summary says of a run: ``time``, ``bytes``, ``drops_by_cause``, ``participation``."""
    totals = result.totals
    frames = result.ledger.columns()
    return {
        "time": {name: int(spent_ns.sum()) / 1e9 for name, spent_ns in _spent_ns(result).items()},
        "bytes": {
            "payload_up": totals.sent_up,
            "payload_down": totals.sent_down,
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


def by_round(result: RunResult, energy: Energy | None = None) -> Columns:
    """Return sums over the dispatches of each round as columns; drops by cause are those during it.

    Work and its energy count in the round in which the server asked for it, whenever it ends.
    """
    rows, frames = result.rounds, result.ledger.columns()
    if not rows:
        return {}
    numbers = [row.round for row in rows]
    of_dispatch, of_frame = (
        np.minimum(np.searchsorted(numbers, of_round), len(numbers) - 1)
        for of_round in (result.dispatches.round(), frames["round"])
    )
    causes = sorted({cause for row in rows for cause in row.drops})
    drops = {
        _column(cause): np.array([row.drops.get(cause, 0) for row in rows], np.int32) for cause in causes
    }
    ended_at_s = np.array([row.ended_at_s for row in rows])
    joules = {} if energy is None else energy.by_round(of_dispatch, ended_at_s)
    return _sums(result, frames, of_dispatch, of_frame, len(rows)) | drops | joules


def by_client(result: RunResult, population: int) -> Columns:
    """Return sums over the dispatches of each client as columns."""
    client, frames = result.dispatches.client(), result.ledger.columns()
    drops = {
        _column(cause): np.bincount(client[dropped], minlength=population).astype(np.int32)
        for cause, dropped in result.dispatches.causes().items()
    }
    return _sums(result, frames, client, frames["client"], population) | drops


def sums(groups: Array, values: Array, num_groups: int) -> Array:
    """Return the sum of the values of each group, int64 ``[num_groups]``, given the group of each value."""
    total = np.zeros(num_groups, np.int64)
    np.add.at(total, groups, values)
    return total


def cost_figures(summary: Summary) -> Figures:
    """Return the compared figures of a run: time by phase, payload, overhead, waste, merges."""
    num_bytes = summary["bytes"]
    return {
        **summary["time"],
        "payload_bytes": num_bytes["payload_up"] + num_bytes["payload_down"],
        "overhead_bytes": num_bytes["overhead_up"] + num_bytes["overhead_down"],
        "wasted_bytes": num_bytes["wasted"],
        **{f"wasted_{what}": share for what, share in wasted_shares(summary).items()},
        **{f"staleness_{name}": value for name, value in summary["staleness"].items()},
        **{f"concurrency_{name}": value for name, value in summary["concurrency"].items()},
        "merges_per_hour": summary["merges_per_hour"],
    }


def wasted_shares(summary: Summary) -> Figures:
    """Return the wasted shares of work and payload; None where there was none at all."""
    time, num_bytes = summary["time"], summary["bytes"]
    work_s = time["download_s"] + time["compute_s"] + time["upload_s"]
    payload = num_bytes["payload_up"] + num_bytes["payload_down"]
    return {
        "work": time["wasted_s"] / work_s if work_s else None,
        "payload": num_bytes["wasted"] / payload if payload else None,
    }


def table(summaries: Sequence[Summary]) -> TextTable:
    """Return the table for people, a row for each algorithm with means over its seeds; 100 columns wide.

    Time away stands in a note where there is any, as it would make the table too wide.
    """
    rows, notes = [], []
    for algorithm, runs in by_algorithm(summaries).items():
        mean = means([cost_figures(run) for run in runs])
        rows.append(
            (
                algorithm,
                *(number_format.duration(mean[f"{phase}_s"]) for phase in SHOWN),
                number_format.percent(mean["wasted_work"]),
                number_format.size(mean["payload_bytes"]),
                number_format.size(mean["overhead_bytes"]),
                number_format.percent(mean["wasted_payload"]),
            )
        )
        if away_s := mean["away_s"]:
            notes.append(f"pauses during work, {algorithm}: {number_format.duration(away_s)}")
        if mean["staleness_max"]:
            stale, at_work = (
                number_format.number(mean[f"{name}_mean"]) for name in ("staleness", "concurrency")
            )
            notes.append(f"staleness of {algorithm}: {stale} on average; {at_work} clients at work")
        drops = sum((Counter(run["drops_by_cause"]) for run in runs), Counter[str]())
        if drops:
            listed = ", ".join(
                f"{cause} {number_format.count(drops[cause] / len(runs))}" for cause in sorted(drops)
            )
            notes.append(f"drops of {algorithm}: {listed}")
    headings = ("algorithm", *SHOWN, "wasted\nwork %", "payload", "overhead", "wasted\nbytes %")
    return TextTable(headings, rows, [*EXPLANATION, *notes], title=TITLE)


def by_algorithm(summaries: Sequence[Summary]) -> dict[str, list[Summary]]:
    """Return the summaries of each algorithm, in the order of first appearance."""
    groups: dict[str, list[Summary]] = {}
    for summary in summaries:
        groups.setdefault(summary["algorithm"], []).append(summary)
    return groups


def means(runs: Sequence[Figures]) -> Figures:
    """Return the mean of each figure over the runs that have it; None where none has."""
    return {name: statistics.fmean(there) if there else None for name, there in measured(runs).items()}


def measured(runs: Sequence[Figures]) -> dict[str, list[float]]:
    """Return the values of each figure over the runs that have it."""
    return {name: [value for run in runs if (value := run[name]) is not None] for name in runs[0]}


def lines(summary: Summary) -> list[tuple[str, str]]:
    """Return the breakdown of one run as names and words."""
    time, num_bytes, part = summary["time"], summary["bytes"], summary["participation"]
    spent = ", ".join(
        f"{number_format.duration(time[f'{phase}_s'])} {phase}"
        for phase in PHASES
        if phase in SHOWN or time["away_s"]
    )
    outcomes = ", ".join(f"{name} {part[name]}" for name in ("merged", "dropped", "rejected", "late"))
    wasted = wasted_shares(summary)
    work, sent = number_format.percent(wasted["work"]), number_format.percent(wasted["payload"])

    def both_ways(what: str) -> str:
        return ", ".join(f"{number_format.size(num_bytes[f'{what}_{way}'])} {way}" for way in ("up", "down"))

    clients = f"{part['clients_asked']} of {number_format.several(summary['clients'], 'client')}"
    return [
        ("client time", spent),
        ("wasted", f"{work} % of the work, {sent} % of the bytes"),
        ("payload", both_ways("payload")),
        ("overhead", both_ways("overhead")),
        ("dispatches", f"{part['asked']} to {clients}: {outcomes}"),
        *([("merges", merged)] if (merged := merge_statistics.line(summary)) else []),
        *([("energy", energy_words(energy))] if (energy := summary.get("energy")) else []),
    ]


def energy_words(energy: Figures) -> str:
    """Return the energy of a run, as its summary has it, in words."""
    server = f", server {number_format.energy(energy['server_j'])}" if energy["server_j"] else ""
    carbon = f", {number_format.mass(energy['carbon_g'])} of CO2" if energy["carbon_g"] is not None else ""
    return f"clients {number_format.energy(energy['clients_j'])}{server}{carbon} (an estimate)"


def _spent_ns(result: RunResult) -> dict[str, Array]:
    """Return the time of each dispatch in each phase, and its wasted time, ns."""
    dispatches = result.dispatches
    spent = {f"{phase}_s": dispatches.phase_ns(phase) for phase in PHASES}
    return spent | {"wasted_s": np.where(dispatches.fate() == Fate.MERGED, 0, dispatches.work_ns())}


def _sums(
    result: RunResult, frames: Columns, of_dispatch: Array, of_frame: Array, num_groups: int
) -> dict[str, Array]:
    """Return sums over groups, given the group of each dispatch and of each frame."""
    spent = _spent_ns(result).items()
    return {
        **{name: sums(of_dispatch, spent_ns, num_groups) / 1e9 for name, spent_ns in spent},
        "wasted_bytes": sums(of_frame, _wasted_bytes(result, frames), num_groups),
    }


def _wasted_bytes(result: RunResult, frames: Columns) -> Array:
    """Return the wasted bytes of each frame: all or none."""
    rows = result.dispatches.rows_of(frames["client"], frames["dispatch"])
    useful = (frames["outcome"] == "delivered") & (result.dispatches.fate()[rows] == Fate.MERGED)
    return np.where(useful, 0, frames["bytes"])


def _column(cause: str) -> str:
    return "dropped_" + re.sub(r"\W+", "_", cause)
