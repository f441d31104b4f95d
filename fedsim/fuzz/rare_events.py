"""Rare events of a run, by its folder alone: a fuzz that never meets one of them does not test it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, TypeAlias

from fedsim.fuzz.recompute import Dispatch, Seen, seen_in
from fedsim.fuzz.run_folder import Row, RunFolder

Came: TypeAlias = Callable[[RunFolder, Seen], bool]
"""Says whether an event came in a run."""

UNITS_NS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9}


def events_of(run: RunFolder) -> tuple[str, ...]:
    """Return the events of :data:`EVENTS` that came in a run."""
    seen = seen_in(run.records)
    return tuple(words for words, came in EVENTS.items() if came(run, seen))


def _record(kind: str, is_one: Callable[[Row], bool] = lambda one: True) -> Came:
    return lambda run, seen: any(map(is_one, seen.records[kind]))


def _fault(kind: str) -> Came:
    return _record("fault", lambda one: one["fault"] == kind)


def _frame(is_one: Callable[[Row], bool]) -> Came:
    return lambda run, seen: any(map(is_one, seen.frames))


def _dispatch(is_one: Callable[[Dispatch], Any]) -> Came:
    return lambda run, seen: any(map(is_one, seen.dispatches.values()))


def _cohorts(is_one: Callable[[int, int], bool]) -> Came:
    """Of a run in which some cohorts ran beforehand, by how many did and how many there were."""
    none = {"run_beforehand": 0, "asked": 0}
    return lambda run, seen: is_one(*map(run.host.get("cohorts", none).get, none))


def _ns(text: str) -> int:
    """Return a time of a scenario."""
    number, unit = text.split()
    return round(float(number) * UNITS_NS[unit])


def _arrivals(seen: Seen) -> Counter[int]:
    """Return how many replies arrived at which instant."""
    ends = (one for one in seen.records["transfer_end"] if one["up"] and one["outcome"] == "delivered")
    return Counter(one["at_ns"] for one in ends)


def _tie(run: RunFolder, seen: Seen) -> bool:
    at_ns, lasts_ns = _arrivals(seen), _ns(run.scenario["participation"]["client_timeout"])
    return any(one.dropped_ns == one.asked_ns + lasts_ns in at_ns for one in seen.dispatches.values())


def _at_one_instant(run: RunFolder, seen: Seen) -> bool:
    return max(_arrivals(seen).values(), default=0) > 1


def _cut_off(run: RunFolder, seen: Seen) -> bool:
    faults = [one for one in run.scenario.get("faults", ()) if one["kind"] == "partition"]
    begins = [(_ns(one["at"]), _ns(one["every"]) if "every" in one else 2**62) for one in faults]
    lost_ns = [one["at_ns"] for one in seen.records["fault"] if one["fault"] == "partition"]
    return any(ns >= at_ns and (ns - at_ns) % every_ns == 0 for ns in lost_ns for at_ns, every_ns in begins)


def _forgot(run: RunFolder, seen: Seen) -> bool:
    if all(one.get("keeps_state", True) for one in run.scenario.get("faults", ())):
        return False
    at_ns = [(one["client"], one["at_ns"]) for one in seen.records["fault"] if one["fault"] == "crash"]
    return _dispatch(
        lambda one: any(who == one.client and ns > (one.answered_ns or ns) for who, ns in at_ns)
    )(run, seen)


def _left_in_transfer(run: RunFolder, seen: Seen) -> bool:
    at_ns = [(one["client"], one["at_ns"]) for one in seen.records["leave"]]
    return _dispatch(lambda one: any(who == one.client and _is_in_transfer(one, ns) for who, ns in at_ns))(
        run, seen
    )


def _is_in_transfer(one: Dispatch, at_ns: int) -> bool:
    """Whether a frame was under way before an instant and is still."""
    edges = [(ns, change) for ns, what, change in one.edges if what != "compute"]
    return sum(change for ns, change in edges if ns < at_ns or (ns == at_ns and change < 0)) > 0


def _two_at_once(run: RunFolder, seen: Seen) -> bool:
    in_order = sorted(seen.dispatches.values(), key=lambda one: (one.client, one.asked_ns))
    return any(a.client == b.client and b.asked_ns < a.ended_ns for a, b in pairwise(in_order))


def _part_filled(run: RunFolder, seen: Seen) -> bool:
    is_left = _dispatch(lambda one: one.cause == "the run ended" and one.answered_ns is not None)
    return run.scenario["participation"]["pacing"]["name"] == "buffered" and is_left(run, seen)


def _attacked(run: RunFolder, seen: Seen) -> bool:
    attackers = {row["client"] for row in run.tables["clients"] if row.get("attack") is not None}
    return _dispatch(lambda one: one.client in attackers and one.outcome == "merged")(run, seen)


def _combined(run: RunFolder, seen: Seen) -> bool:
    merged = (len(one["clients"]) > 1 for one in seen.records["merge"])
    return "aggregation" in run.scenario and any(merged)


EVENTS: Mapping[str, Came] = {
    "a frame arrived twice": _frame(lambda one: one["arrivals"] > 1),
    "a frame arrived with a wrong checksum": _fault("corrupt"),
    "a frame was delayed by a fault": _fault("delay"),
    "a frame was sent again": _record("retry"),
    "a frame was under way when the run ended": _frame(lambda one: one["outcome"] == "in_flight"),
    "a partition began during a transfer": _cut_off,
    "a device was slow at work": _fault("slow"),
    "a client crashed at work": _fault("crash"),
    "a client lost its state in a crash": _forgot,
    "a client dropped out": _record("abandon", lambda one: one["cause"] == "dropped out"),
    "a battery ran empty at work": _record("abandon", lambda one: one["cause"] == "battery empty"),
    "a client left during a transfer": _left_in_transfer,
    "a transfer began anew on a return": _record("transfer_end", lambda one: one["cause"] == "restarted"),
    "a client had two dispatches at once": _two_at_once,
    "a lease ended at the instant at which a frame arrived": _tie,
    "two replies arrived at one instant": _at_one_instant,
    "a late reply was ignored": _record("late"),
    "a reply was merged in a later round": _dispatch(lambda one: (one.merged_in or 0) > one.round),
    "a reply was stale when it was merged": _dispatch(lambda one: one.staleness),
    "a reply of an attacker was merged": _attacked,
    "a robust rule combined several replies": _combined,
    "an edge averaged several replies": _record("edge_merge", lambda one: len(one["clients"]) > 1),
    "a frame of an edge was lost with the end of the run": _record(
        "edge_end", lambda one: one["outcome"] == "lost"
    ),
    "a reply was rejected": _record("reject"),
    "a merge left the finite range": _record("reject", lambda one: "the finite range" in one["reason"]),
    "a round ended without a reply": _record("round_end", lambda one: one["asked"] and not one["merged"]),
    "a round failed, and its replies were discarded": _dispatch(lambda one: one.cause == "round failed"),
    "a buffer was part-filled when the run ended": _part_filled,
    "a budget ended the run": _record("stop"),
    "all cohorts took the fast path": _cohorts(lambda fast, asked: 0 < fast == asked),
    "some cohorts took the fast path, and others left it": _cohorts(lambda fast, asked: 0 < fast < asked),
    "a client without samples was evaluated": lambda run, seen: any(
        not one["num_samples"] for one in run.tables["evaluations"]
    ),
}
"""What to look for, in words."""
