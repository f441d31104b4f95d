"""Recompute the figures of a run folder from its trace and its evaluations, with no other code of fedsim.

From the trace come every dispatch and its times, every frame and every row; from the evaluations come the
accuracies. :mod:`fedsim.fuzz.check_run_folder` compares them with summary and tables. This finds a wrong
figure, not an event that never happened. Times are as :mod:`fedsim.runtime.records.dispatch_table` defines
them.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import itemgetter
from statistics import fmean, stdev
from typing import Any

from fedsim.fuzz.run_folder import Row, RunFolder

NOT_DERIVABLE = {
    "model_hash": "no model is in the folder",
    "codec_saturated": "no frame is in the folder",
    "accuracy.others": "only means of what an algorithm measures beside are kept",
    "energy": "tests/report/test_energy.py computes it from traces",
    "macro_f1": "tests/report/test_record_run.py computes it from the table of classes",
}
"""Figures of the summary that are not recomputed, and why."""

PHASES = ("download", "compute", "upload", "away", "waiting")
TRAFFIC = tuple(
    f"{what}_{way}"
    for what in ("frames", "bytes", "bytes_plain", "parameters", "data", "overhead")
    for way in ("up", "down")
)
BETTER_AND_BETTER = ("in_flight", "lost", "undecodable", "delivered")
OUTCOMES = ("asked", "merged", "dropped", "rejected", "late")

Edge = tuple[int, str, int]
"""An instant in ns, what begins or ends then, and 1 or -1."""


@dataclass
class Dispatch:
    """One dispatch; instants in ns."""

    client: int
    dispatch: int
    round: int
    exchange: str
    asked_ns: int
    version: int
    staleness: int | None = None
    merged_in: int | None = None
    outcome: str = "open"
    cause: str | None = None
    dropped_ns: int | None = None
    late_ns: int | None = None
    ended_ns: int = 0
    edges: list[Edge] = field(default_factory=list)
    answered_ns: int | None = None
    phase_ns: dict[str, int] = field(default_factory=dict)
    under_way: dict[str, deque[Row]] = field(default_factory=lambda: defaultdict(deque))
    ended_last: dict[str, Row] = field(default_factory=dict)

    @property
    def wasted_ns(self) -> int:
        """Time at work for a reply that was not merged."""
        return 0 if self.outcome == "merged" else sum(self.phase_ns[phase] for phase in PHASES[:3])


@dataclass
class Seen:
    """The contents of a trace."""

    end_ns: int = 0
    dispatches: dict[tuple[int, int], Dispatch] = field(default_factory=dict)
    frames: list[Row] = field(default_factory=list)
    rounds: list[Row] = field(default_factory=list)
    records: dict[str, list[Row]] = field(default_factory=lambda: defaultdict(list))


def seen_in(records: Sequence[Row]) -> Seen:
    """Collect the records of a trace."""
    seen = Seen(records[-1]["at_ns"] if records else 0)
    absences: dict[int, list[Edge]] = defaultdict(list)
    tally: Row = Counter()
    version = merges = 0
    for record in records:
        at_ns, client = record["at_ns"], record.get("client", -1)
        of = client, record.get("dispatch", -1)
        seen.records[record["kind"]].append(record)
        match record["kind"]:
            case "dispatch":
                seen.dispatches[of] = Dispatch(*of, record["round"], record["exchange"], at_ns, version)
                tally["asked"] += 1
            case "transfer_start":
                one = seen.dispatches[of]
                frame = _frame(record, one)
                seen.frames.append(frame)
                _count_frame(tally, frame)
                one.under_way[_way(record)].append(frame)
                one.edges.append((at_ns, _way(record), 1))
            case "coded":
                one = seen.dispatches[of]
                frame = one.under_way[_way(record)][-1]
                _count_plain(tally, frame, record["bytes_plain"] - frame["bytes_plain"])
                frame["bytes_plain"] = record["bytes_plain"]
            case "transfer_end" | "transfer_copy":
                _end_frame(seen.dispatches[of], record)
            case "job_start" | "job_end" as kind if client >= 0:
                seen.dispatches[of].edges.append((at_ns, "compute", 1 if kind == "job_start" else -1))
            case "leave":
                absences[client].append((at_ns, "away", 1))
            case "return" | "abandon":
                if absences[client] and absences[client][-1][2] == 1:
                    absences[client].append((at_ns, "away", -1))
            case "drop":
                one = seen.dispatches[of]
                one.outcome, one.cause, one.dropped_ns = "dropped", record["cause"], at_ns
                tally["dropped"] += 1
                tally[column_of(record["cause"])] += 1
            case "late":
                one = seen.dispatches[of]
                one.outcome, one.late_ns = "late", at_ns
                tally["late"] += 1
            case "reject":
                seen.dispatches[of].outcome = "rejected"
                tally["rejected"] += 1
            case "merge":
                counts = record["round"] > 0 and record["version"] > merges  # else a selector's question
                merges = record["version"]
                for merged in zip(record["clients"], record["dispatches"], strict=True):
                    one = seen.dispatches[merged]
                    one.outcome = "merged"
                    tally["merged"] += 1
                    if counts:
                        one.staleness, one.merged_in = version - one.version, record["round"]
                if counts:
                    version += 1
                    tally["merges"] += 1
            case "edge_merge":
                for merged in zip(record["clients"], record["dispatches"], strict=True):
                    seen.dispatches[merged].outcome = "merged"
                    tally["merged"] += 1
            case "round_end":
                seen.rounds.append({**tally, "round": record["round"], "ended_at_s": at_ns / 1e9})
                tally = Counter()
    if seen.rounds:  # what comes after the last round belongs to it, so that rows sum to the whole
        seen.rounds[-1] |= {name: seen.rounds[-1].get(name, 0) + number for name, number in tally.items()}
    for one in seen.dispatches.values():
        _measure(one, absences[one.client], seen.end_ns)
    return seen


def _way(record: Row) -> str:
    return "upload" if record["up"] else "download"


def _frame(record: Row, dispatch: Dispatch) -> Row:
    same = ("client", "dispatch", "up", "bytes", "parameters", "data", "overhead")
    frame = {name: record[name] for name in same} | {"bytes_plain": record["bytes"]}
    about = {"round": dispatch.round, "exchange": dispatch.exchange, "kind": record["message"]}
    times = {"sent_at_s": record["at_ns"] / 1e9, "arrived_at_s": None}
    return frame | about | times | {"outcome": "in_flight", "arrivals": 0}


def _count_frame(tally: Row, frame: Row) -> None:
    way = "up" if frame["up"] else "down"
    tally[f"frames_{way}"] += 1
    tally[f"overhead_{way}"] += frame["overhead"]
    if frame["data"]:
        tally[f"data_{way}"] += frame["bytes"]
    else:
        tally[f"bytes_{way}"] += frame["bytes"]
        tally[f"parameters_{way}"] += frame["parameters"]
        _count_plain(tally, frame, frame["bytes_plain"])


def _count_plain(tally: Row, frame: Row, num_bytes: int) -> None:
    if not frame["data"]:
        tally[f"bytes_plain_{'up' if frame['up'] else 'down'}"] += num_bytes


def _end_frame(dispatch: Dispatch, record: Row) -> None:
    way = _way(record)
    if record["kind"] == "transfer_end":
        frame = dispatch.under_way[way].popleft()
        dispatch.ended_last[way], is_better = frame, True
        dispatch.edges.append((record["at_ns"], way, -1))
        if record["up"] and record["outcome"] == "delivered" and dispatch.answered_ns is None:
            dispatch.answered_ns = record["at_ns"]
    else:
        frame = dispatch.ended_last[way]
        is_better = BETTER_AND_BETTER.index(record["outcome"]) > BETTER_AND_BETTER.index(frame["outcome"])
    if record["outcome"] != "lost":
        frame["arrivals"] += 1
        if is_better:
            frame["arrived_at_s"] = record["at_ns"] / 1e9
    if is_better:
        frame["outcome"] = record["outcome"]


def _measure(one: Dispatch, absences: Sequence[Edge], end_ns: int) -> None:
    """Compute a dispatch's end and its time in each phase from its edges."""
    work = list(one.edges)
    under_way = Counter[str]()
    for _, phase, change in work:
        under_way[phase] += change
    if one.outcome == "open" or any(under_way.values()):
        one.ended_ns = end_ns
    else:
        ends = [one.asked_ns, *(at_ns for at_ns, _, _ in work)]
        if one.late_ns is not None:  # of a reply without a frame, too
            ends.append(one.late_ns)
        if one.dropped_ns is not None and (one.answered_ns is None or one.answered_ns > one.dropped_ns):
            ends.append(one.dropped_ns)
        one.ended_ns = max(ends)
    one.phase_ns = dict.fromkeys(PHASES, 0)
    active = Counter[str]()
    before_ns = one.asked_ns
    for at_ns, what, change in sorted([*work, *absences, (one.ended_ns, "end", 0)], key=itemgetter(0)):
        until_ns = min(max(at_ns, before_ns), one.ended_ns)
        phase = next((phase for phase in ("compute", "upload", "download") if active[phase]), "waiting")
        if active["away"] and phase != "waiting":
            phase = "away"
        one.phase_ns[phase] += until_ns - before_ns
        before_ns = until_ns
        active[what] += change


def column_of(cause: str) -> str:
    """Return the column that counts drops by a cause."""
    return "dropped_" + re.sub(r"[^A-Za-z0-9_]+", "_", cause)


def _faults(run: RunFolder, seen: Seen) -> dict[str, int]:
    """Return how many faults of each kind have struck; of attacks, merged replies of attackers."""
    counts = Counter[str](record["fault"] for record in seen.records["fault"])
    attacks = {row["client"]: row.get("attack") for row in run.tables["clients"]}
    counts.update(dict.fromkeys(filter(None, attacks.values()), 0))
    replied = {(frame["client"], frame["dispatch"]) for frame in seen.frames if frame["up"]}
    counts.update(
        attack
        for one in seen.dispatches.values()
        if one.outcome == "merged" and one.exchange != "loss" and (one.client, one.dispatch) in replied
        if (attack := attacks[one.client]) is not None
    )
    return dict(counts)


def recomputed(run: RunFolder, seen: Seen) -> Row:
    """Return the summary."""
    scenario = run.scenario
    dispatches = list(seen.dispatches.values())
    totals = {name: sum(row.get(name, 0) for row in seen.rounds) for name in TRAFFIC}
    overhead = {f"overhead_{way}": totals.pop(f"overhead_{way}") for way in ("up", "down")}
    counts = {name: sum(row.get(name, 0) for row in seen.rounds) for name in OUTCOMES}
    time = {f"{phase}_s": ns / 1e9 for phase, ns in spent_ns(dispatches).items()}
    rounds = {row["round"]: row for row in run.tables["rounds"]}
    measured = measures(run.tables["evaluations"])
    last = max(measured, default=None)
    final = measured.get(last, {}) | rounds.get(last, {}) if last is not None else {}
    means = [one["mean"] for one in measured.values() if one["mean"] is not None]
    losses = [one["loss_mean"] for one in measured.values() if _finite(one["loss_mean"]) is not None]
    globals_ = [row["accuracy_global"] for row in rounds.values() if row["accuracy_global"] is not None]
    return {
        "fedsim": run.host["fedsim"],
        "wall_s": run.host["wall_s"],
        "scenario": scenario["run"]["name"],
        "algorithm": scenario["algorithm"]["name"],
        "seed": scenario["run"]["seed"],
        "rounds": num_rounds_of(run, seen),
        "stopped_by": seen.records["stop"][0]["budget"] if seen.records["stop"] else None,
        "clients": sum(group["count"] for group in scenario["fleet"]),
        "simulated_s": seen.end_ns / 1e9,
        **totals,
        "accuracy": {
            "personal_mean": final.get("mean"),
            "personal_std": final.get("std"),
            "personal_worst_decile": final.get("worst_decile"),
            "global": final.get("accuracy_global"),
            "best": max(means, default=None),
            "best_global": max(globals_, default=None),
        },
        "loss": {
            "personal_mean": _finite(final.get("loss_mean")),
            "personal_std": _finite(final.get("loss_std")),
            "global": _finite(final.get("loss_global")),
            "best": min(losses, default=None),
        },
        "drops": counts["dropped"],
        "rejected": counts["rejected"],
        "rejected_by_reason": dict(Counter(record["reason"] for record in seen.records["reject"])),
        "trace_hash": run.hash,
        "time": time,
        "bytes": {
            "payload_up": totals["bytes_up"] + totals["data_up"],
            "payload_down": totals["bytes_down"] + totals["data_down"],
            **overhead,
            "wasted": wasted_bytes(seen, seen.frames),
        },
        "drops_by_cause": dict(Counter(one.cause for one in dispatches if one.cause is not None)),
        **({"faults": _faults(run, seen)} if "faults" in scenario else {}),
        **({"edges": _edges(run, seen)} if "edge" in scenario else {}),
        "wasted": {
            "work": _share(time["wasted_s"], time["download_s"] + time["compute_s"] + time["upload_s"]),
            "payload": _share(
                wasted_bytes(seen, seen.frames),
                sum(totals[f"{what}_{way}"] for what in ("bytes", "data") for way in ("up", "down")),
            ),
        },
        **_merging(seen, dispatches),
        "participation": {
            **counts,
            "clients_asked": len({one.client for one in dispatches}),
            "clients_merged": len({one.client for one in dispatches if one.outcome == "merged"}),
        },
    }


def _edge_names(run: RunFolder) -> list[str]:
    return [one["cell"] for one in run.scenario.get("edge", ())]


def edge_frames(run: RunFolder, seen: Seen) -> list[Row]:
    """Return the frames between edges and the server."""
    names, frames, under_way = _edge_names(run), list[Row](), dict[Any, Row]()
    for record in sorted((*seen.records["edge_start"], *seen.records["edge_end"]), key=itemgetter("at_ns")):
        at_s, way = record["at_ns"] / 1e9, (record["edge"], record["up"])
        if record["kind"] == "edge_end":
            frame = under_way.pop(way)
            frame["outcome"] = record["outcome"]
            frame["arrived_at_s"] = at_s if record["outcome"] == "delivered" else None
            continue
        same = {name: record[name] for name in ("round", "up", "bytes", "parameters", "overhead")}
        under_way[way] = same | {"edge": names[record["edge"]], "kind": record["message"], "sent_at_s": at_s}
        frames.append(under_way[way])
    return frames


def _edges(run: RunFolder, seen: Seen) -> Row:
    names, frames, sums = _edge_names(run), edge_frames(run, seen), Row()
    cells = {row["client"]: row["cell"] for row in run.tables["clients"]}
    for way in ("up", "down"):
        mine = [one for one in frames if one["up"] == (way == "up")]
        direct = [one for one in seen.frames if one["up"] == (way == "up")]
        sums[f"frames_{way}"] = len(mine)
        sums[f"bytes_{way}"] = sum(one["bytes"] for one in mine)
        sums[f"overhead_{way}"] = sum(one["overhead"] for one in mine)
        at_server = sum(one["bytes"] for one in direct if cells[one["client"]] not in names)
        sums[f"at_server_{way}"] = sums[f"bytes_{way}"] + at_server
    return {"count": len(names), "means": len(seen.records["edge_merge"]), **sums}


def num_rounds_of(run: RunFolder, seen: Seen) -> int:
    """Return the number of rounds that were begun."""
    return int(run.summary["rounds"] if seen.records["stop"] else run.scenario["run"]["rounds"])


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _merging(seen: Seen, dispatches: Sequence[Dispatch]) -> Row:
    """Return staleness, concurrency and the number of merges."""
    stale = sorted(one.staleness for one in dispatches if one.staleness is not None)
    merges = sum(row.get("merges", 0) for row in seen.rounds)
    lasting = [(one.asked_ns, one.ended_ns) for one in dispatches if one.ended_ns > one.asked_ns]
    edges = sorted([(ended, -1) for _, ended in lasting] + [(asked, 1) for asked, _ in lasting])
    worked_ns = sum(one.ended_ns - one.asked_ns for one in dispatches)
    return {
        "staleness": {
            "mean": fmean(stale) if stale else None,
            "p99": stale[math.ceil(0.99 * len(stale)) - 1] if stale else None,
            "max": stale[-1] if stale else None,
        },
        "concurrency": {
            "mean": _share(worked_ns, seen.end_ns),
            "max": max(accumulate(change for _, change in edges), default=0),
        },
        "merges": merges,
        "merges_per_hour": _share(merges * 3600, seen.end_ns / 1e9),
    }


def merged_by_round(dispatches: Iterable[Dispatch], number: int, began_ns: int, ended_ns: int) -> Row:
    """Return the staleness of a round's merged replies, and its mean concurrency."""
    stale = [one.staleness for one in dispatches if one.merged_in == number and one.staleness is not None]
    overlaps_ns = [min(one.ended_ns, ended_ns) - max(one.asked_ns, began_ns) for one in dispatches]
    return {
        "staleness_mean": fmean(stale) if stale else None,
        "staleness_max": max(stale, default=None),
        "concurrency_mean": _share(sum(ns for ns in overlaps_ns if ns > 0), ended_ns - began_ns),
    }


def spent_ns(dispatches: Iterable[Dispatch]) -> dict[str, int]:
    """Return the sums over dispatches of each phase and of the wasted time."""
    chosen = list(dispatches)
    sums = {phase: sum(one.phase_ns[phase] for one in chosen) for phase in PHASES}
    return {**sums, "wasted": sum(one.wasted_ns for one in chosen)}


def wasted_bytes(seen: Seen, frames: Iterable[Row]) -> int:
    """Return the bytes of frames that did not arrive or whose reply was not merged."""
    return sum(
        one["bytes"]
        for one in frames
        if one["outcome"] != "delivered"
        or seen.dispatches[one["client"], one["dispatch"]].outcome != "merged"
    )


def measures(rows: Iterable[Row]) -> dict[int, Row]:
    """Return accuracy and loss over clients of each evaluation, by round."""
    by_round: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        by_round[row["round"]].append(row)
    found = {}
    for number, mine in by_round.items():
        present = [row for row in mine if row["accuracy"] is not None]
        accuracies = sorted(row["accuracy"] for row in present)
        # Where samples were measured, a missing loss was not finite.
        losses = [math.nan if row["loss"] is None else row["loss"] for row in mine if row["num_samples"]]
        tenth = accuracies[: max(1, round(len(accuracies) / 10))]
        weights = sum(row["num_samples"] for row in present)
        weighted = sum(row["accuracy"] * row["num_samples"] for row in present)
        found[number] = {
            "clients": len(mine),
            "mean": fmean(accuracies) if accuracies else None,
            "std": _std(accuracies),
            "worst_decile": fmean(tenth) if tenth else None,
            "weighted_mean": weighted / weights if weights else None,
            "loss_mean": fmean(losses) if losses else None,
            "loss_std": _std(losses),
        }
    return found


def _std(values: Sequence[float]) -> float | None:
    if len(values) < 2:
        return 0.0 if values else None
    return stdev(values) if all(map(math.isfinite, values)) else math.nan


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else value


def tally_of(dispatches: Iterable[Dispatch], frames: Iterable[Row]) -> Counter[str]:
    """Return the counts of outcomes and of causes of drops, and the traffic."""
    tally: Counter[str] = Counter()
    for one in dispatches:
        tally["asked"] += 1
        tally[one.outcome] += one.outcome in ("merged", "rejected", "late")
        if one.cause is not None:  # a late reply's dispatch was dropped before
            tally["dropped"] += 1
            tally[column_of(one.cause)] += 1
    for frame in frames:
        _count_frame(tally, frame)
    return tally
