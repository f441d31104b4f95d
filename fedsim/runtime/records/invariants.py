"""What must be true of every run, checked from what it left behind.

The cheap ones are checked always; those that read the whole trace need it kept, and run under ``--verify``.
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fedsim.bus import Ledger, Outcome, Totals
from fedsim.clock import Trace
from fedsim.errors import InvariantError
from fedsim.runtime.records.dispatch_table import PHASES, WORK, DispatchTable, Fate, Phase
from fedsim.runtime.records.result import RoundRow

_OUTCOMES = {outcome.name.lower(): outcome for outcome in Outcome}
_ROUNDED_NS = 1000


def check_counts(ledger: Ledger, rows: Sequence[RoundRow], dispatches: DispatchTable) -> None:
    """Check that every frame and every dispatch has one end, and that rows sum to the whole.

    Raises:
        InvariantError: Something was lost or counted twice, or a phase of a dispatch is negative.
    """
    ledger.check()
    if (is_open := dispatches.fate() == Fate.OPEN).any():
        one = int(np.argmax(is_open))
        raise InvariantError(
            f"dispatch {one} of the table, of client {dispatches.client()[one]}, was neither merged, dropped "
            "nor rejected"
        )
    for outcome, mask in dispatches.outcomes().items():
        if (told := sum(getattr(row, outcome) for row in rows)) != (count := int(mask.sum())):
            raise InvariantError(f"{outcome}: rounds sum to {told}, the table of dispatches to {count}")
    for phase in PHASES:
        spent_ns = dispatches.phase_ns(phase)
        if (spent_ns < 0).any():
            row = int(np.argmin(spent_ns))
            raise InvariantError(f"dispatch {row} of the table spent {spent_ns[row]} ns {phase}")
    if (total := sum((row.traffic for row in rows), Totals())) != ledger.totals():
        raise InvariantError(f"rounds sum to {total}, the ledger to {ledger.totals()}")


def check_phases(trace: Trace, dispatches: DispatchTable) -> None:
    """Check the phases of all dispatches against the starts and ends of a kept trace.

    A phase is as long as its transfers or jobs together, less the time that their client was away, and that
    time is a phase too; where some overlap, no longer. What has no end is not compared. Where a record says
    how long the phases were, it stands in place of the events before it, to a microsecond: instants of a real
    loop are rounded.

    Raises:
        InvariantError: A phase is not.
        ValueError: The trace was not kept.
    """
    began: dict[tuple[Any, ...], list[tuple[int, int]]] = {}
    spans: dict[tuple[int, int], list[tuple[int, int, str, int]]] = {}
    told_ns: dict[tuple[int, int], dict[str, int]] = {}
    absences = _Absences()
    for at_ns, kind, *values in _kept(trace):
        if kind in ("leave", "return", "abandon"):
            absences.note(at_ns, kind, values[0])
            continue
        if kind == "spent":
            of = values[0], values[1]
            told_ns[of] = dict(zip(WORK, values[2:], strict=True))
            spans[of] = []
            continue
        what, _, edge = kind.partition("_")
        if what not in ("transfer", "job") or values[0] < 0:
            continue
        phase = "compute" if what == "job" else "upload" if values[2] else "download"
        way = (*values[:2], phase)
        if edge == "start":
            began.setdefault(way, []).append((at_ns, absences.until(at_ns, values[0])))
        elif edge == "end":
            (start_ns, before_ns), away_ns = began[way].pop(0), absences.until(at_ns, values[0])
            spans.setdefault((values[0], values[1]), []).append((start_ns, at_ns, phase, away_ns - before_ns))
    unended = {of[:2] for of, starts in began.items() if starts}
    compared = [of for of in spans if of not in unended]
    if not compared:
        return
    rows = dispatches.rows_of(*np.array(compared).T).tolist()
    phases: tuple[Phase, ...] = (*WORK, "away")
    table = {phase: dispatches.phase_ns(phase) for phase in phases}
    for of, row in zip(compared, rows, strict=True):
        mine = sorted(spans[of])
        overlap = any(one[1] > other[0] for one, other in itertools.pairwise(mine))
        for phase in phases:
            if phase == "away":
                lasted = sum(away for *_, away in mine)
            else:
                lasted = sum(end - start - away for start, end, name, away in mine if name == phase)
            spent = int(table[phase][row])
            if of in told_ns:
                lasted += told_ns[of].get(phase, 0)
                is_well = lasted - _ROUNDED_NS <= spent <= lasted
            else:
                is_well = spent == lasted or (spent < lasted and overlap)
            if not is_well:
                raise InvariantError(
                    f"dispatch {of[1]} of client {of[0]}: {phase} took {lasted} ns by the trace, "
                    f"{spent} ns by the table of dispatches"
                )


class _Absences:
    """How long clients have been away, told of comings and goings in order."""

    def __init__(self) -> None:
        self._past_ns = Counter[int]()
        self._since_ns: dict[int, int] = {}

    def note(self, at_ns: int, kind: str, client: int) -> None:
        if kind == "leave":
            self._since_ns[client] = at_ns
        elif client in self._since_ns:  # whose work is given up is not watched any more
            self._past_ns[client] += at_ns - self._since_ns.pop(client)

    def until(self, at_ns: int, client: int) -> int:
        return self._past_ns[client] + at_ns - self._since_ns.get(client, at_ns)


def check_trace(trace: Trace, ledger: Ledger) -> None:
    """Check a kept trace: time, starts and ends, bytes, merges, and that nobody works for what is given up.

    The bytes sent each way are those delivered, lost, undecodable and in flight, the same by the trace as by
    the ledger.

    Raises:
        InvariantError: A promise is broken; the message names it.
        ValueError: The trace was not kept.
    """
    before = 0
    frames, jobs = _Frames(), Counter[tuple[Any, ...]]()
    merged, abandoned = set(), set()
    for at_ns, kind, *values in _kept(trace):
        if at_ns < before:
            raise InvariantError(f"time went back from {before} ns to {at_ns} ns at a record of {kind}")
        before = at_ns
        if kind in ("transfer_start", "job_start") and tuple(values[:2]) in abandoned:
            raise InvariantError(
                f"{kind} at {at_ns} ns for dispatch {values[1]} of client {values[0]}, "
                "which was abandoned before"
            )
        if kind == "transfer_start":
            frames.start(*values[:3], num_bytes=values[4])
        elif kind == "transfer_end":
            frames.end(at_ns, *values[:4])
        elif kind == "transfer_copy":
            frames.copy(*values[:4])
        elif kind == "abandon":
            abandoned.add(tuple(values[:2]))
        elif kind == "job_start":
            jobs[tuple(values[:3])] += 1
        elif kind == "job_end":
            if not jobs[tuple(values[:3])]:
                raise _without_begin("job", values[:3], at_ns)
            jobs[tuple(values[:3])] -= 1
        elif kind == "merge":
            for reply in zip(values[3], values[4], strict=True):
                if reply in merged:
                    raise InvariantError(
                        f"the reply to dispatch {reply[1]} of client {reply[0]} was merged twice"
                    )
                merged.add(reply)
    if left := [("job", *job) for job in jobs.elements()]:
        raise InvariantError(f"jobs began and never ended: {left[:5]}")
    if frames.num_in_flight != (in_flight := ledger.outcomes()["in_flight"]):
        raise InvariantError(
            f"{frames.num_in_flight} transfers of the trace have no end, the ledger says {in_flight}"
        )
    columns, totals = ledger.columns(), ledger.totals()
    for way, up, sent in (
        ("down", False, totals.bytes_down + totals.data_down),
        ("up", True, totals.bytes_up + totals.data_up),
    ):
        mine = columns["up"] == up
        outcome, num_bytes = columns["outcome"][mine], columns["bytes"][mine]
        entered = {name: int(num_bytes[outcome == name].sum()) for name in _OUTCOMES}
        if (seen := frames.bytes_by_outcome(up)) != entered or sum(seen.values()) != sent:
            raise InvariantError(
                f"of the frames {way}, the trace has {seen} bytes, the ledger {entered} and {sent} in all"
            )


class _Frames:
    """The bytes of all frames and what became of them, told of their starts and ends in order."""

    def __init__(self) -> None:
        self._in_flight: dict[tuple[int, int, bool], deque[int]] = {}
        self._ended: dict[tuple[int, int, bool], tuple[int, Outcome]] = {}
        self._bytes = Counter[tuple[bool, Outcome]]()

    def start(self, client: int, dispatch: int, up: bool, *, num_bytes: int) -> None:
        self._in_flight.setdefault((client, dispatch, up), deque()).append(num_bytes)
        self._bytes[up, Outcome.IN_FLIGHT] += num_bytes

    def end(self, at_ns: int, client: int, dispatch: int, up: bool, outcome: str) -> None:
        if not (waiting := self._in_flight.get((client, dispatch, up))):
            raise _without_begin("transfer", (client, dispatch, up), at_ns)
        self._move(client, dispatch, up, waiting.popleft(), Outcome.IN_FLIGHT, _OUTCOMES[outcome])

    def copy(self, client: int, dispatch: int, up: bool, outcome: str) -> None:
        # Of several frames of a dispatch, the one that ended last is that which is copied.
        num_bytes, best = self._ended[client, dispatch, up]
        if (of_copy := _OUTCOMES[outcome]) > best:
            self._move(client, dispatch, up, num_bytes, best, of_copy)

    def _move(
        self, client: int, dispatch: int, up: bool, num_bytes: int, before: Outcome, after: Outcome
    ) -> None:
        self._bytes[up, before] -= num_bytes
        self._bytes[up, after] += num_bytes
        self._ended[client, dispatch, up] = num_bytes, after

    @property
    def num_in_flight(self) -> int:
        return sum(map(len, self._in_flight.values()))

    def bytes_by_outcome(self, up: bool) -> dict[str, int]:
        return {name: self._bytes[up, outcome] for name, outcome in _OUTCOMES.items()}


def _kept(trace: Trace) -> Iterable[tuple[Any, ...]]:
    if not trace.keep:
        raise ValueError("only a kept trace can be checked: Trace(keep=True)")
    return trace.kept


def _without_begin(what: str, which: Iterable[Any], at_ns: int) -> InvariantError:
    return InvariantError(f"{(what, *which)} ended at {at_ns} ns without having begun")
