"""Rare events of a run, by its folder alone: a fuzz that never meets one of them does not test it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

from fedsim.fuzz.recompute import Dispatch, Seen, seen_in
from fedsim.fuzz.run_folder import RunFolder

UNITS_NS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9}


def events_of(run: RunFolder) -> tuple[str, ...]:
    """Return the events of :data:`EVENTS` that came in a run."""
    seen = seen_in(run.records)
    return tuple(words for words, came in EVENTS.items() if came(run, seen))


def _any(kind: str, **values: Any) -> Callable[[RunFolder, Seen], bool]:
    """Return whether the trace has a record of a kind with some values."""
    return lambda run, seen: any(values.items() <= one.items() for one in seen.records[kind])


def _ns(text: str) -> int:
    """Return a time of a scenario."""
    number, unit = text.split()
    return round(float(number) * UNITS_NS[unit])


def _tie(run: RunFolder, seen: Seen) -> bool:
    arrivals = {one["at_ns"] for one in seen.records["transfer_end"] if one["outcome"] == "delivered"}
    lasts_ns = _ns(run.scenario["participation"]["client_timeout"])
    return any(one.dropped_ns == one.asked_ns + lasts_ns in arrivals for one in seen.dispatches.values())


def _cut_off(run: RunFolder, seen: Seen) -> bool:
    lost_ns = {one["at_ns"] for one in seen.records["fault"] if one["fault"] == "partition"}
    for fault in run.scenario.get("faults", ()):
        if fault["kind"] == "partition":
            first_ns, every_ns = _ns(fault["at"]), _ns(fault["every"]) if "every" in fault else 2**62
            if any(at_ns >= first_ns and (at_ns - first_ns) % every_ns == 0 for at_ns in lost_ns):
                return True
    return False


def _forgot(run: RunFolder, seen: Seen) -> bool:
    if all(one.get("keeps_state", True) for one in run.scenario.get("faults", ())):
        return False
    first_ns: dict[int, int] = {}
    for one in seen.dispatches.values():
        if one.answered_ns is not None:
            first_ns[one.client] = min(one.answered_ns, first_ns.get(one.client, one.answered_ns))
    crashes = [one for one in seen.records["fault"] if one["fault"] == "crash"]
    return any(first_ns.get(one["client"], one["at_ns"]) < one["at_ns"] for one in crashes)


def _left_in_transfer(run: RunFolder, seen: Seen) -> bool:
    leaves = [(one["client"], one["at_ns"]) for one in seen.records["leave"]]
    return any(
        one.client == client and _is_in_transfer(one, at_ns)
        for client, at_ns in leaves
        for one in seen.dispatches.values()
    )


def _is_in_transfer(one: Dispatch, at_ns: int) -> bool:
    begun = Counter[str]()
    for edge_ns, what, change in one.edges:
        if edge_ns < at_ns or (edge_ns == at_ns and change < 0):
            begun[what] += change
    return bool(begun["upload"] or begun["download"])


def _two_at_once(run: RunFolder, seen: Seen) -> bool:
    in_order = sorted(seen.dispatches.values(), key=lambda one: (one.client, one.asked_ns))
    return any(a.client == b.client and b.asked_ns < a.ended_ns for a, b in pairwise(in_order))


def _part_filled(run: RunFolder, seen: Seen) -> bool:
    is_buffered = run.scenario["participation"]["pacing"]["name"] == "buffered"
    ended = [one for one in seen.dispatches.values() if one.cause == "the run ended"]
    return is_buffered and any(one.answered_ns is not None for one in ended)


def _at_one_instant(run: RunFolder, seen: Seen) -> bool:
    ends = [one for one in seen.records["transfer_end"] if one["up"] and one["outcome"] == "delivered"]
    return max(Counter(one["at_ns"] for one in ends).values(), default=0) > 1


EVENTS: Mapping[str, Callable[[RunFolder, Seen], bool]] = {
    "a frame arrived twice": lambda run, seen: any(one["arrivals"] > 1 for one in seen.frames),
    "a frame arrived with a wrong checksum": _any("fault", fault="corrupt"),
    "a frame was delayed by a fault": _any("fault", fault="delay"),
    "a frame was sent again": _any("retry"),
    "a frame was under way when the run ended": lambda run, seen: any(
        one["outcome"] == "in_flight" for one in seen.frames
    ),
    "a partition began during a transfer": _cut_off,
    "a client crashed at work": _any("fault", fault="crash"),
    "a client lost its state in a crash": _forgot,
    "a client dropped out": _any("abandon", cause="dropped out"),
    "a client left during a transfer": _left_in_transfer,
    "a transfer began anew when its client returned": _any("transfer_end", cause="restarted"),
    "a client had two dispatches at once": _two_at_once,
    "a lease ended at the instant at which a frame arrived": _tie,
    "two replies arrived at one instant": _at_one_instant,
    "a late reply was ignored": _any("late"),
    "a reply was merged in a later round": lambda run, seen: any(
        one.merged_in is not None and one.merged_in > one.round for one in seen.dispatches.values()
    ),
    "a reply was stale when it was merged": lambda run, seen: any(
        one.staleness for one in seen.dispatches.values()
    ),
    "a reply was rejected": _any("reject"),
    "a merge left the finite range": lambda run, seen: any(
        "leaves the finite range" in one["reason"] for one in seen.records["reject"]
    ),
    "a round ended without a reply": lambda run, seen: any(
        one["asked"] and not one["merged"] for one in seen.records["round_end"]
    ),
    "a round failed, and its replies were discarded": _any("drop", cause="round failed"),
    "a buffer was part-filled when the run ended": _part_filled,
    "a budget ended the run": _any("stop"),
    "all cohorts took the fast path": lambda run, seen: (
        0 < run.host.get("cohorts", {}).get("run_beforehand", 0) == run.host["cohorts"]["asked"]
    ),
    "some cohorts took the fast path, and others left it": lambda run, seen: (
        0 < run.host.get("cohorts", {}).get("run_beforehand", 0) < run.host["cohorts"]["asked"]
    ),
    "a client without samples was evaluated": lambda run, seen: any(
        not one["num_samples"] for one in run.tables["evaluations"]
    ),
}
"""What to look for, in words, and whether it came in a run."""
