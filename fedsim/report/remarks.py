"""What a user has to know to read the times of a run.

Availability that hardly matters, leases that were waited for, work that did not fit its deadline.

It concerns runs in virtual time and emulations: in plain runs over sockets availability is ignored.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from fedsim.network.fault_settings import FATAL
from fedsim.report.number_format import duration, several
from fedsim.runtime.parts import Parts
from fedsim.runtime.records.result import RunResult
from fedsim.runtime.sockets.emulate import LATE

MIN_COVERED = 0.1
"""Share of the time over which availability changes that a run should cover."""

MAX_WAITED = 0.5
"""Share of a run's time that may pass in waiting for clients that do not reply."""

MAX_LATE = 0.5
"""Share of the replies that may come after the deadline that clients fitted their work into."""

_REPLIED = ("merged", "rejected", "late")
"""Outcomes of dispatches with a reply."""

_CAUSES = ("timeout", "left", "dropped out", "crash", *sorted(FATAL))
"""Causes of drops for which the lease has run out."""

_ROUNDING_S = 1e-6


def remarks(parts: Parts, result: RunResult, simulated_s: float | None = None) -> list[str]:
    """Return remarks on the times of a run, without a full stop; most runs have none."""
    covered_s = result.simulated_s if simulated_s is None else simulated_s
    notes = [
        f"the run covers {duration(covered_s)}, and availability {name!r} changes over {duration(scale_s)}: "
        "hardly any of that is seen; run more rounds, give participation.pacing an interval, or leave "
        "availability out"
        for name, scale_s in parts.fleet.time_scales
        if covered_s < MIN_COVERED * scale_s
    ]
    if (host := result.emulation) is not None and host["num_late"]:
        notes.append(
            f"this machine was late with {host['num_late']:g} of {host['num_dispatches']:g} dispatches, by "
            f"more than {100 * LATE:g} % of their time, with the worst by {100 * host['worst']:.0f} %: give "
            "a smaller --speed-up, or end other programs"
        )
    if result.num_saturated:
        notes.append(
            f"{several(result.num_saturated, 'value')} beyond the range of a codec became its largest "
            "number: take bfloat16 instead of float16"
        )
    if (by_s := parts.workload.reply_by_s) is not None:
        table = result.dispatches.columns()
        replied = np.isin(table["outcome"], _REPLIED)
        late = replied & (table["ended_at_s"] - table["asked_at_s"] > by_s + _ROUNDING_S)
        if np.count_nonzero(late) > MAX_LATE * np.count_nonzero(replied):
            or_faults = ", or faults delayed them" if parts.faults else ""
            notes.append(
                f"{np.count_nonzero(late)} of {np.count_nonzero(replied)} replies came after the deadline of "
                f"participation.workload ({duration(by_s)}): the least work takes longer, or links are "
                f"shared{or_faults}; give it a longer deadline"
            )
    waits_s = _waits_s(parts.client_timeout_s, result)
    waited_s = sum(waits_s.values())
    if waited_s > MAX_WAITED * result.simulated_s:
        notes.append(
            f"waiting for clients that did not reply took {duration(waited_s)} of "
            f"{duration(result.simulated_s)}: a lease (client_timeout = {duration(parts.client_timeout_s)}) "
            f"had to run out in {several(len(waits_s), 'round')}; give a smaller "
            "participation.client_timeout, or participation.pacing a deadline or over_selection"
        )
    return notes


def _waits_s(timeout_s: float, result: RunResult) -> Mapping[int, float]:
    """Return how long a round waited for nothing but leases that ran out, s, by round, where it did.

    The dispatches of one exchange are sent at one instant. The wait is from the last reply to them until
    their lease has run out. It counts only where the next round began after it, and because of it: not where
    the dispatches were carried over, or where rounds begin at an interval.
    """
    waits_s: dict[int, float] = defaultdict(float)
    if not result.drops:
        return waits_s
    table = result.dispatches.columns()
    asked_at_s, ended_at_s = table["asked_at_s"], table["ended_at_s"]
    instants, first, batch = np.unique(asked_at_s, return_index=True, return_inverse=True)
    replied_at_s = instants.copy()
    replied = np.isin(table["outcome"], ("merged", "rejected"))
    np.maximum.at(replied_at_s, batch[replied], ended_at_s[replied])
    # A dispatch that a deadline dropped after its client had left ends with that, before its lease.
    expired = np.isin(table["cause"], _CAUSES) & (ended_at_s - asked_at_s > timeout_s - _ROUNDING_S)
    rows = result.rounds
    ends_s = {row.round: row.ended_at_s for row in rows}
    is_delayed = {
        row.round: later.began_at_s < row.ended_at_s + _ROUNDING_S
        for row, later in zip(rows, [*rows[1:], rows[-1]], strict=True)
    }
    for number in np.unique(batch[expired]).tolist():
        round_ = int(table["round"][first[number]])
        expired_at_s = float(instants[number]) + timeout_s
        if is_delayed[round_] and expired_at_s < ends_s[round_] + _ROUNDING_S:
            waits_s[round_] += max(expired_at_s - float(replied_at_s[number]), 0.0)
    return waits_s
