"""What must be true of every run, checked from what it left behind.

The cheap ones are checked always; those that read the whole trace need it kept, and run under ``--verify``.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fedsim.bus import Ledger, Outcome, Totals
from fedsim.bus.ledger import OUTCOME_WORDS
from fedsim.clock import Trace
from fedsim.errors import InvariantError
from fedsim.runtime.records.dispatch_phases import PHASES
from fedsim.runtime.records.dispatch_rows import Fate
from fedsim.runtime.records.dispatch_table import DispatchTable
from fedsim.runtime.records.result import RoundRow

_OUTCOMES = dict(zip(OUTCOME_WORDS, Outcome, strict=True))


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


def check_trace(trace: Trace, ledger: Ledger) -> None:
    """Check a kept trace: times, bytes, merges, and that no client works on an abandoned dispatch.

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
        elif kind in ("merge", "edge_merge"):
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
        ("down", False, totals.sent_down),
        ("up", True, totals.sent_up),
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
