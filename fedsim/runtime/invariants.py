"""What must be true of every run (DESIGN 4.9), checked from what it left behind.

The cheap ones are checked always; those that read the whole trace need it kept, and run under ``--verify``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from fedsim.bus import Ledger, Totals
from fedsim.clock import Trace
from fedsim.errors import InvariantError
from fedsim.runtime.recorder import Recorder


def check_counts(ledger: Ledger, recorder: Recorder) -> None:
    """Check that every frame and every dispatch is accounted for.

    Raises:
        InvariantError: Something was lost or counted twice.
    """
    ledger.check()
    ends = ledger.outcomes()
    if sum(ends.values()) != len(ledger):
        raise InvariantError(f"{len(ledger)} frames were sent, {ends} ended")
    total = Totals()
    for row in recorder.rows:
        total = total + row.traffic
    counts = {name: int(of_client.sum()) for name, of_client in recorder.by_client.items()}
    if counts["asked"] != counts["merged"] + counts["dropped"] + counts["rejected"]:
        raise InvariantError(f"a dispatch is merged, dropped or rejected, but the tallies are {counts}")
    if total != ledger.totals():
        raise InvariantError(f"rounds sum to {total}, the ledger to {ledger.totals()}")


def check_trace(trace: Trace, ledger: Ledger) -> None:
    """Check a kept trace: time, starts and ends, bytes, merges.

    Raises:
        InvariantError: A promise is broken; the message names it.
        ValueError: The trace was not kept.
    """
    if not trace.keep:
        raise ValueError("only a kept trace can be checked: Trace(keep=True)")
    before = 0
    sent, under_way, merged = [0, 0], Counter[tuple[Any, ...]](), set()
    for at_ns, kind, *values in trace.kept:
        if at_ns < before:
            raise InvariantError(f"time went back from {before} ns to {at_ns} ns at a record of {kind}")
        before = at_ns
        if kind == "transfer_start":
            client, dispatch, up, _, num_bytes, *_ = values
            sent[up] += num_bytes
            under_way["transfer", client, dispatch, up] += 1
        elif kind == "transfer_end":
            _end(under_way, ("transfer", *values[:3]), at_ns)
        elif kind == "job_start":
            under_way["job", *values[:3]] += 1
        elif kind == "job_end":
            _end(under_way, ("job", *values[:3]), at_ns)
        elif kind == "merge":
            for reply in zip(values[3], values[4], strict=True):
                if reply in merged:
                    raise InvariantError(
                        f"the reply to dispatch {reply[1]} of client {reply[0]} was merged twice"
                    )
                merged.add(reply)
    totals = ledger.totals()
    if [totals.bytes_down + totals.data_down, totals.bytes_up + totals.data_up] != sent:
        raise InvariantError(f"the trace sent {sent} bytes down and up, the ledger says {totals}")
    _all_ended(under_way, ledger.outcomes()["in_flight"])


def _end(under_way: Counter[tuple[Any, ...]], what: tuple[Any, ...], at_ns: int) -> None:
    if not under_way[what]:
        raise InvariantError(f"{what} ended at {at_ns} ns without having begun")
    under_way[what] -= 1


def _all_ended(under_way: Counter[tuple[Any, ...]], in_flight: int) -> None:
    left: Sequence[tuple[Any, ...]] = [what for what, count in under_way.items() for _ in range(count)]
    jobs = [what for what in left if what[0] == "job"]
    if jobs:
        raise InvariantError(f"jobs began and never ended: {jobs[:5]}")
    if len(left) != in_flight:
        raise InvariantError(f"{len(left)} transfers of the trace have no end, the ledger says {in_flight}")
