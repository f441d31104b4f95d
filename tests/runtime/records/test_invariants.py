"""Both checks catch what was made up to break each promise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fedsim.bus import Header, Ledger, Outcome, Totals
from fedsim.clock import Trace
from fedsim.errors import InvariantError
from fedsim.runtime.records.dispatch_rows import Fate
from fedsim.runtime.records.dispatch_table import DispatchTable
from fedsim.runtime.records.invariants import check_counts, check_trace
from fedsim.runtime.records.result import RoundRow


def _ledger(*outcomes: Outcome) -> Ledger:
    """Return a ledger of frames of 10 bytes on their way down."""
    ledger = Ledger()
    for dispatch, outcome in enumerate(outcomes):
        row = ledger.sent(0, Header(-1, 0, 1, "talk", dispatch, 0), False, ("word", 10, 3, False, 0))
        if outcome is not Outcome.IN_FLIGHT:
            ledger.ended(0, row, outcome)
    return ledger


def _trace(*records: tuple[Any, ...]) -> Trace:
    trace = Trace(keep=True)
    trace.kept.extend(records)
    return trace


def _start(at_ns: int, dispatch: int = 0, num_bytes: int = 10, up: bool = False) -> tuple[Any, ...]:
    return (at_ns, "transfer_start", 0, dispatch, up, "word", num_bytes, 3, False)


def _end(at_ns: int, dispatch: int = 0, outcome: str = "delivered", up: bool = False) -> tuple[Any, ...]:
    return (at_ns, "transfer_end", 0, dispatch, up, outcome)


def _copy(at_ns: int, outcome: str) -> tuple[Any, ...]:
    return (at_ns, "transfer_copy", 0, 0, False, outcome)


JOB = (0, "job_start", 0, 0, "fit", 1.0, 1.0), (1, "job_end", 0, 0, "fit", "done")


def _row(**changes: Any) -> RoundRow:
    """Return the row of one round with one dispatch that was merged."""
    return replace(RoundRow(1, 0.0, 1.0, 1, 1, 0, 0, 0, Totals(), None), **changes)


def test_a_sound_record_passes() -> None:
    ledger = Ledger()
    ledger.ended(
        0, ledger.sent(0, Header(-1, 0, 1, "talk", 0, 0), False, ("word", 10, 3, False, 0)), Outcome.LOST
    )
    ledger.sent(0, Header(0, -1, 1, "talk", 0, 0), True, ("word", 10, 3, False, 0))
    check_counts(ledger, [_row(traffic=ledger.totals())], _dispatches())


def test_a_dispatch_without_an_end_is_caught() -> None:
    table = _dispatches()
    table._fate[0] = Fate.OPEN
    with pytest.raises(InvariantError, match="of client 0, was neither merged, dropped nor rejected"):
        check_counts(Ledger(), [_row(merged=0)], table)


@pytest.mark.parametrize(
    ("fate", "row", "message"),
    [
        (Fate.MERGED, {"asked": 0}, "asked: rounds sum to 0, the table of dispatches to 1"),
        (Fate.MERGED, {"merged": 2}, "merged: rounds sum to 2, the table of dispatches to 1"),
        (Fate.DROPPED, {"merged": 0}, "dropped: rounds sum to 0, the table of dispatches to 1"),
        (Fate.REJECTED, {"merged": 0}, "rejected: rounds sum to 0, the table of dispatches to 1"),
        (Fate.LATE, {"merged": 0, "dropped": 1}, "late: rounds sum to 0, the table of dispatches to 1"),
    ],
)
def test_what_no_round_counts_is_caught(fate: Fate, row: dict[str, int], message: str) -> None:
    table = _dispatches()
    table._fate[0] = fate
    with pytest.raises(InvariantError, match=message):
        check_counts(Ledger(), [_row(**row)], table)


def test_a_frame_that_no_round_counts_is_caught() -> None:
    with pytest.raises(InvariantError, match=r"rounds sum to .* the ledger to"):
        check_counts(_ledger(Outcome.DELIVERED), [_row()], _dispatches())


def test_totals_that_are_not_those_of_the_rows_are_caught() -> None:
    ledger = _ledger(Outcome.DELIVERED)
    ledger._totals[False][1] += 1
    with pytest.raises(InvariantError, match="its totals say"):
        check_counts(ledger, [_row()], _dispatches())


def test_a_negative_time_is_caught() -> None:
    table = _dispatches()
    table._times[1] = -1
    with pytest.raises(InvariantError, match="dispatch 0 of the table spent -1 ns download"):
        check_counts(Ledger(), [_row()], table)


def test_a_sound_trace_passes() -> None:
    ledger = _ledger(Outcome.DELIVERED, Outcome.IN_FLIGHT)
    merge = (3, "merge", 1, "talk", 1, (0, 1), (0, 0))
    check_trace(_trace(*JOB, _start(1), _start(1, 1), _end(2), merge), ledger)


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([_start(5), _end(4)], "time went back from 5 ns to 4 ns at a record of transfer_end"),
        ([_start(0), _end(1), _end(1)], r"\('transfer', 0, 0, False\) ended at 1 ns without having begun"),
        ([_start(0), _end(1, dispatch=7)], r"\('transfer', 0, 7, False\) ended at 1 ns without"),
        ([_start(0), _end(1), JOB[1]], r"\('job', 0, 0, 'fit'\) ended at 1 ns without having begun"),
        ([JOB[0], _start(0), _end(1)], "jobs began and never ended"),
        ([_start(0, num_bytes=11), _end(1)], "the trace has .*'delivered': 11} bytes, the ledger .*: 10}"),
        ([_start(0), _end(1, outcome="lost")], "of the frames down, the trace has .*'lost': 10, .* bytes"),
        (
            [_start(0), _end(1), _copy(2, "lost"), _start(3, up=True), _end(4, up=True)],
            "of the frames up, the trace has .*'delivered': 10} bytes, the ledger .*: 0} and 0 in all",
        ),
        (
            [_start(0), (1, "abandon", 0, 0, "left"), _end(1), (1, "job_start", 0, 0, "fit", 1.0, 1.0)],
            "job_start at 1 ns for dispatch 0 of client 0, which was abandoned before",
        ),
        ([(0, "abandon", 0, 0, "left"), _start(0)], "transfer_start at 0 ns for dispatch 0 of client 0"),
        ([_start(0)], "1 transfers of the trace have no end, the ledger says 0"),
        (
            [
                _start(0),
                _end(1),
                (2, "merge", 1, "talk", 1, (0,), (0,)),
                (3, "merge", 2, "talk", 2, (0,), (0,)),
            ],
            "the reply to dispatch 0 of client 0 was merged twice",
        ),
        (
            [_start(0), _end(1), (2, "merge", 1, "talk", 1, (3, 3), (1, 1))],
            "the reply to dispatch 1 of client 3 was merged twice",
        ),
    ],
)
def test_a_broken_promise_is_caught(records: list[tuple[Any, ...]], message: str) -> None:
    with pytest.raises(InvariantError, match=message):
        check_trace(_trace(*records), _ledger(Outcome.DELIVERED))


def test_a_transfer_that_the_ledger_has_under_way_needs_no_end() -> None:
    check_trace(_trace(_start(0)), _ledger(Outcome.IN_FLIGHT))
    with pytest.raises(InvariantError, match="0 transfers of the trace have no end, the ledger says 1"):
        check_trace(_trace(_start(0), _end(1)), _ledger(Outcome.IN_FLIGHT))


def test_of_several_copies_the_best_counts() -> None:
    check_trace(
        _trace(_start(0), _end(1, outcome="undecodable"), _copy(2, "delivered"), _copy(3, "lost")),
        _ledger(Outcome.DELIVERED),
    )


def test_a_ledger_whose_frames_ended_otherwise_is_caught() -> None:
    for outcome in (Outcome.LOST, Outcome.UNDECODABLE):
        with pytest.raises(InvariantError, match=r"bytes, the ledger .*'delivered': 0} and 10 in all"):
            check_trace(_trace(_start(0), _end(1)), _ledger(outcome))
    # One frame is in flight by both, but not the same one.
    trace = _trace(_start(0), _start(0, dispatch=1, num_bytes=7), _end(1, dispatch=1))
    ledger = _ledger(Outcome.DELIVERED)
    ledger.sent(0, Header(-1, 0, 1, "talk", 1, 0), False, ("word", 7, 3, False, 0))
    with pytest.raises(InvariantError, match=r"trace has {'in_flight': 10, .* the ledger {'in_flight': 7"):
        check_trace(trace, ledger)


def test_what_went_on_before_an_abandonment_may_end_after_it() -> None:
    gone = (1, "abandon", 0, 0, "left")
    check_trace(_trace(_start(0), JOB[0], gone, JOB[1], _end(2)), _ledger(Outcome.DELIVERED))


def test_only_a_kept_trace_can_be_checked() -> None:
    with pytest.raises(ValueError, match=r"Trace\(keep=True\)"):
        check_trace(Trace(), Ledger())


def _dispatches(*during: tuple[Any, ...]) -> DispatchTable:
    """Return the table of one dispatch that was merged: a nanosecond down, two of work with other events."""
    table = DispatchTable(Trace())
    for at_ns, kind, *values in (
        (0, "dispatch", 0, 0, 1, "talk", 0),
        (0, "transfer_start", 0, 0, False),
        (1, "transfer_end", 0, 0, False, "delivered", ""),
        (1, "job_start", 0, 0, "fit", 1.0, 1.0),
        *during,
        (3, "job_end", 0, 0, "fit", "done"),
        (3, "merge", 1, "talk", 1, (0,), (0,)),
    ):
        table._handlers[kind](at_ns, *values)
    table.finish(3)
    return table
