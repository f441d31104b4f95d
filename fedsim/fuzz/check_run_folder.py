"""Compare the summary, tables and log of a run folder with the figures of :mod:`fedsim.fuzz.recompute`."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, zip_longest
from typing import Any

from fedsim.fuzz.recompute import (
    NOT_DERIVABLE,
    OUTCOMES,
    PHASES,
    TRAFFIC,
    Dispatch,
    Seen,
    column_of,
    edge_frames,
    measures,
    merged_by_round,
    num_rounds_of,
    recomputed,
    seen_in,
    spent_ns,
    tally_of,
    wasted_bytes,
)
from fedsim.fuzz.run_folder import Row, RunFolder

MEANS = ("accuracy", "loss", "mean")
"""Words in the names of means of floats, whose sums may have another order. Others are compared exactly."""
TOLERANCE = 1e-9

OF_DEVICES = (
    *("group", "label", "model"),
    *("speed_flops", "memory_bytes", "up_bps", "down_bps", "latency_s", "overhead_s"),
    *("variation", "efficiency", "memory_bandwidth_bytes_per_s", "drop_out_per_s"),
    *("num_train", "num_val", "num_test", "cell", "attack", "battery_level"),
    *("compute_power_w", "receive_power_w", "transmit_power_w", "receive_per_mbit_s_w"),
    *("transmit_per_mbit_s_w", "tail_power_w", "radio_tail_s", "idle_power_w"),
)
"""Columns of ``clients`` that were drawn before the run, or are no counts."""

ENERGY = ("compute_j", "receive_j", "transmit_j", "tail_j", "idle_j", "server_j", "carbon_g")
"""Columns of energy: tests/report/test_energy.py computes them from traces."""

EMPTY = "battery empty"
"""Why a client gives its work up that has run empty."""

SUMMED = ("bytes", "parameters", "data")
"""Traffic with cumulative columns in ``rounds``."""

OF_NO_EVENT = ("began_at_s", "loss_global")
"""Columns of ``rounds`` that are not recomputed."""


def faults_of(run: RunFolder) -> list[str]:
    """Return the differences between the folder of a simulated run and its trace."""
    seen, tables = seen_in(run.records), run.tables
    labels = {row["client"]: row["label"] for row in tables["clients"]}
    dispatches = seen.dispatches.values()
    return [
        *_order_faults(run),
        *_retry_faults(run, seen),
        *_idle_faults(run, seen),
        *_battery_faults(run, seen),
        *_summary_faults(run.summary, recomputed(run, seen), run.log),
        *_rows(
            "dispatches",
            _without(tables["dispatches"], *ENERGY),
            (_dispatch_row(one, labels) for one in dispatches),
        ),
        *_rows("messages", tables["messages"], seen.frames),
        *_rows("edge_messages", tables["edge_messages"], edge_frames(run, seen)),
        *_rows("rounds", _without(tables["rounds"], *OF_NO_EVENT, *ENERGY), _round_rows(tables, seen)),
        *_began_faults(tables["rounds"]),
        *_rows("clients", _without(tables["clients"], *OF_DEVICES, *ENERGY), _client_rows(run, seen)),
        *_evaluation_faults(run, seen),
        *_log_faults(run, seen),
    ]


def _same(name: str, said: Any, wanted: Any) -> bool:
    if isinstance(said, float) and isinstance(wanted, float) and any(word in name for word in MEANS):
        return math.isclose(said, wanted, rel_tol=TOLERANCE, abs_tol=1e-12)
    return type(said) is type(wanted) and bool(said == wanted)


def _compare(where: str, said: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[str]:
    for name in dict.fromkeys((*said, *wanted)):
        if name not in said or name not in wanted or not _same(name, said[name], wanted[name]):
            mine, its = (table.get(name, "nothing") for table in (said, wanted))
            yield f"{where}.{name}: it says {mine!r}, the trace {its!r}"


def _rows(table: str, said: Sequence[Row], wanted: Iterable[Row]) -> Iterator[str]:
    nothing: Row = {}
    for number, (mine, its) in enumerate(zip_longest(said, wanted, fillvalue=nothing)):
        yield from _compare(f"{table}[{number}]", mine, its)


def _without(rows: Iterable[Row], *columns: str) -> list[Row]:
    return [{name: value for name, value in row.items() if name not in columns} for row in rows]


def _flat(table: Mapping[str, Any], above: str = "") -> Row:
    flat: Row = {}
    for name, value in table.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{above}{name}.")
        else:
            flat[above + name] = value
    return flat


def _order_faults(run: RunFolder) -> Iterator[str]:
    for before, after in pairwise(run.records):
        if after["at_ns"] < before["at_ns"]:
            yield f"trace: {after} comes after {before}"


def _retry_faults(run: RunFolder, seen: Seen) -> Iterator[str]:
    """A frame is sent again only as often as the scenario allows."""
    retry = run.scenario["participation"].get("retry", {"times": 0})
    counts = Counter((one["client"], one["dispatch"], one["up"]) for one in seen.records["retry"])
    for (client, dispatch, up), number in counts.items():
        if number > retry["times"]:
            which = f"dispatch {dispatch} of client {client}"
            yield f"trace: the frame {'up' if up else 'down'} of {which} was sent again {number} times"


def _idle_faults(run: RunFolder, seen: Seen) -> Iterator[str]:
    """After a synchronous round that asked somebody, the next one does if a client is there all the time."""
    pacing = run.scenario["participation"]["pacing"]
    if pacing["name"] != "synchronous" or pacing["params"]["late"] == "carry":
        return
    groups = [one for one in run.scenario["fleet"] for _ in range(one["count"])]
    unable = run.summary["ineligible"]["clients"]
    there = [
        row["client"]
        for row, one in zip(run.tables["clients"], groups, strict=False)
        if one["availability"]["name"] == "always" and "battery" not in one
        if row["num_train"] and row["client"] not in unable
    ]
    rounds = [row for row in run.tables["rounds"] if 1 <= row["round"] < num_rounds_of(run, seen)]
    for before, row in pairwise(rounds):
        if there and before["asked"] and not row["asked"]:
            yield f"rounds: nobody was asked in round {row['round']}, though client {there[0]} was there"


def _battery_faults(run: RunFolder, seen: Seen) -> Iterator[str]:
    """Of each dispatch to a client with a battery, the end is followed by one record of its level."""
    groups = [one for one in run.scenario["fleet"] for _ in range(one["count"])]
    have = {client for client, one in enumerate(groups) if "battery" in one}
    ends = Counter((one["client"], one["dispatch"]) for one in seen.records["abandon"])
    ends.update(
        (one["client"], one["dispatch"])
        for one in seen.records["transfer_end"]
        if one["up"] and one["outcome"] == "delivered"
    )
    told = Counter((one["client"], one["dispatch"]) for one in seen.records["battery"])
    for client, dispatch in sorted(told.keys() | ends.keys()):
        count, is_over = told[client, dispatch], ends[client, dispatch] > 0
        if count > (client in have) or (client in have and is_over and not count):
            yield f"trace: {count} levels of the battery of client {client} after dispatch {dispatch}"
    empty = [(one["at_ns"], one["client"]) for one in seen.records["abandon"] if one["cause"] == EMPTY]
    levels = {(one["at_ns"], one["client"]): one["level_j"] for one in seen.records["battery"]}
    for at_ns, client in empty:
        if levels.get((at_ns, client)) != 0:
            yield f"trace: client {client} ran empty with {levels.get((at_ns, client))} J at {at_ns} ns"
    for row in run.tables["clients"]:
        level = row.get("battery_level")
        if (level is not None) != (row["client"] in have) or not 0 <= (level or 0) <= 1:
            yield f"clients: the level of the battery of client {row['client']} is {level}"


def _summary_faults(summary: Row, wanted: Row, log: Sequence[Row]) -> Iterator[str]:
    wanted["finite"] = not any(line["event"] == "not finite" for line in log)
    wanted["divergence"] = next((line["remark"] for line in log if line["event"] == "divergence"), None)
    # Which clients have too little memory is told here alone; that none of them was asked is below.
    named = summary["ineligible"]["clients"]
    wanted["ineligible"] = {"count": len(named), "clients": named, "reason": "memory" if named else None}
    said = {
        name: value for name, value in _flat(summary).items() if not name.startswith(tuple(NOT_DERIVABLE))
    }
    yield from _compare("summary", said, _flat(wanted))


def _dispatch_row(one: Dispatch, labels: Mapping[int, str]) -> Row:
    same = ("client", "dispatch", "round", "exchange", "outcome", "cause", "version", "staleness")
    return {
        **{name: getattr(one, name) for name in same},
        "label": labels.get(one.client),
        "asked_at_s": one.asked_ns / 1e9,
        "ended_at_s": one.ended_ns / 1e9,
        **{f"{phase}_s": one.phase_ns[phase] / 1e9 for phase in PHASES},
    }


def _sums(dispatches: Sequence[Dispatch], frames: Iterable[Row], seen: Seen) -> Row:
    spent = {f"{phase}_s": ns / 1e9 for phase, ns in spent_ns(dispatches).items()}
    return {**spent, "wasted_bytes": wasted_bytes(seen, frames)}


def _counted(seen: Seen) -> list[str]:
    """Return the columns of counts."""
    causes = sorted({record["cause"] for record in seen.records["drop"]})
    return [*OUTCOMES, *TRAFFIC, *map(column_of, causes)]


def _grouped(seen: Seen, key: str) -> tuple[dict[int, list[Dispatch]], dict[int, list[Row]]]:
    """Return dispatches and frames by round or by client."""
    dispatches, frames = defaultdict[int, list[Dispatch]](list), defaultdict[int, list[Row]](list)
    for one in seen.dispatches.values():
        dispatches[getattr(one, key)].append(one)
    for frame in seen.frames:
        frames[frame[key]].append(frame)
    return dispatches, frames


def _round_rows(tables: Mapping[str, Sequence[Row]], seen: Seen) -> Iterator[Row]:
    measured = measures(tables["evaluations"])
    began_ns = {row["round"]: round(row["began_at_s"] * 1e9) for row in tables["rounds"]}
    globals_ = {record["round"]: record["global"] for record in seen.records["evaluation"]}
    dispatches, frames = _grouped(seen, "round")
    sums = dict.fromkeys((name for name in TRAFFIC if name.rpartition("_")[0] in SUMMED), 0)
    for row in seen.rounds:
        number = row["round"]
        of = measured.get(number, {})
        sums = {name: total + row.get(name, 0) for name, total in sums.items()}
        yield {
            "round": number,
            "ended_at_s": row["ended_at_s"],
            **{name: row.get(name, 0) for name in _counted(seen)},
            **{f"cumulative_{name}": total for name, total in sums.items()},
            **_sums(dispatches[number], frames[number], seen),
            "merges": row.get("merges", 0),
            **merged_by_round(
                seen.dispatches.values(), number, began_ns.get(number, 0), round(row["ended_at_s"] * 1e9)
            ),
            **{f"accuracy_{name}": of.get(name) for name in ("mean", "std", "worst_decile", "weighted_mean")},
            **{name: _number(of.get(name)) for name in ("loss_mean", "loss_std")},
            "accuracy_global": globals_.get(number),
        }


def _number(value: float | None) -> float | None:
    """Return None for NaN, as the tables have it."""
    return None if value is None or math.isnan(value) else value


def _began_faults(rounds: Sequence[Row]) -> Iterator[str]:
    before_s = 0.0
    for row in rounds:
        if not before_s <= row["began_at_s"] <= row["ended_at_s"]:
            yield f"rounds: {row['round']} began at {row['began_at_s']} s, not after {before_s} s"
        before_s = row["ended_at_s"]


def _client_rows(run: RunFolder, seen: Seen) -> Iterator[Row]:
    dispatches, frames = _grouped(seen, "client")
    last = max((row["round"] for row in run.tables["evaluations"]), default=None)
    final = {row["client"]: row for row in run.tables["evaluations"] if row["round"] == last}
    for client in range(sum(group["count"] for group in run.scenario["fleet"])):
        tally = tally_of(dispatches[client], frames[client])
        yield {
            "client": client,
            **{name: tally[name] for name in _counted(seen)},
            **_sums(dispatches[client], frames[client], seen),
            **{name: final.get(client, {}).get(name) for name in ("accuracy", "loss")},
        }


def _evaluation_faults(run: RunFolder, seen: Seen) -> Iterator[str]:
    """Compare evaluations with the scenario, with the trace, and with the clients' data."""
    scenario, tables = run.scenario, run.tables
    settings, num_rounds = scenario["evaluation"], num_rounds_of(run, seen)
    is_on = scenario["engine"]["executor"] != "null"
    every, every_s, at_start = settings.get("every"), settings.get("every_s"), settings["at_start"]
    # After the last round it is due once more where somebody was asked.
    closing = [row["round"] for row in tables["rounds"] if row["round"] > num_rounds and row["asked"]]
    by_rounds = every if every is not None else int(every_s is None)
    due = [0] if is_on and at_start else []
    if is_on and (by_rounds or every_s is not None):
        ends = {row["round"]: row["ended_at_s"] for row in tables["rounds"] if 0 < row["round"] < num_rounds}
        next_s = every_s or math.inf
        for number, ended_at_s in ends.items():
            if is_time := ended_at_s >= next_s:
                next_s = every_s * (ended_at_s // every_s + 1)
            if is_time or (by_rounds and number % by_rounds == 0):
                due.append(number)
        due += [num_rounds, *closing]
    measured = measures(tables["evaluations"])
    due = list(dict.fromkeys(due))  # a budget may be spent before the first round
    if list(measured) != due:
        yield f"evaluations: of the rounds {list(measured)}, and due are {due}"
    traced = [{**one, "mean": one["personal_mean"]} for one in seen.records["evaluation"]]
    means = [
        {"round": number, "clients": of["clients"], "mean": of["mean"]} for number, of in measured.items()
    ]
    yield from _rows(
        "evaluations by round", means, _without(traced, "at_ns", "kind", "personal_mean", "global")
    )
    wanted = min(settings["clients"], len(tables["clients"]))
    for number, of in measured.items():
        if of["clients"] != wanted:
            yield f"evaluations: {of['clients']} clients in round {number}, and {wanted} are wanted"
    clients: dict[int, list[int]] = defaultdict(list)
    for row in tables["evaluations"]:
        clients[row["round"]].append(row["client"])
    first = sorted(set(next(iter(clients.values()), ())))
    if any(some != first for some in clients.values()):
        yield f"evaluations: of other clients in one round than in another: {dict(clients)}"
    column = f"num_{settings['split']}"
    holds = {row["client"]: row[column] for row in tables["clients"]}
    for row in tables["evaluations"]:
        has = holds.get(row["client"])
        if row["num_samples"] != has:
            yield f"evaluations: {row['num_samples']} samples of client {row['client']}, which has {has}"
        if not has and (row["accuracy"], row["loss"]) != (None, None):
            yield f"evaluations: figures of client {row['client']}, which has no samples"


def _log_faults(run: RunFolder, seen: Seen) -> Iterator[str]:
    """Compare the log with the trace, event by event."""
    events: dict[str, list[Row]] = defaultdict(list)
    for line in run.log:
        events[line["event"]] += _without([line], "event", "level")
    for event, kind in (("dropped", "drop"), ("rejected", "reject"), ("late", "late")):
        records = [{"at_s": one["at_ns"] / 1e9, **one} for one in seen.records[kind]]
        yield from _rows(f"log {event}", events[event], _without(records, "at_ns", "kind"))
    ends = [{"at_s": one["at_ns"] / 1e9, **one} for one in seen.records["round_end"]]
    yield from _rows("log round", _without(events["round"], "dropped"), _without(ends, "at_ns", "kind"))
    begin = {name: run.summary[name] for name in ("scenario", "algorithm", "seed")}
    yield from _rows("log begin", events["begin"], [begin])
    end = {"simulated_s": seen.end_ns / 1e9, "trace_hash": run.hash}
    yield from _rows("log end", events["end"], [end])
    for client in run.summary["ineligible"]["clients"]:
        if any(one.client == client for one in seen.dispatches.values()):
            yield f"summary.ineligible: client {client} was asked"
