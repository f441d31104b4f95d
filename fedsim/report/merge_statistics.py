"""Statistics of merges: staleness of replies, clients at work, merges per hour.

*Staleness* is the number of merges of rounds between a dispatch and the merge of its reply. *Concurrency* is
the number of dispatches under way, from their sending to their end (``dispatch_table.py``), in means over
time. *Merges* are those of rounds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsim.params import Array
from fedsim.report import number_format
from fedsim.runtime.run import RunResult

HOUR_S = 3600


def merge_figures(result: RunResult) -> dict[str, Any]:
    """Return what the summary says of a run: ``staleness``, ``concurrency``, ``merges``, ``merges_per_hour``.

    None where no reply was merged, or where no time passed.
    """
    staleness, simulated_s = result.dispatches.staleness(), result.simulated_s
    asked_ns, ended_ns = result.dispatches.asked_ns(), result.dispatches.ended_ns()
    at_work = int(np.sum(ended_ns - asked_ns)) / 1e9
    merges = len(result.dispatches.rounds_of_merges())
    return {
        "staleness": {
            "mean": float(staleness.mean()) if len(staleness) else None,
            "p99": int(np.quantile(staleness, 0.99, method="inverted_cdf")) if len(staleness) else None,
            "max": int(staleness.max()) if len(staleness) else None,
        },
        "concurrency": {
            "mean": at_work / simulated_s if simulated_s else None,
            "max": _most_at_work(asked_ns, ended_ns),
        },
        "merges": merges,
        "merges_per_hour": merges * HOUR_S / simulated_s if simulated_s else None,
    }


def by_round(result: RunResult) -> dict[str, Array]:
    """Return columns of the rounds: merges, the staleness of what they merged, and mean concurrency."""
    rows, dispatches = result.rounds, result.dispatches
    numbers = np.array([row.round for row in rows], np.int64)
    of_merges = dispatches.rounds_of_merges()
    staleness, merge = dispatches.staleness(), dispatches.merge_of_each()
    of_reply = np.searchsorted(numbers, of_merges[merge])
    count = np.bincount(of_reply, minlength=len(rows))
    total = np.bincount(of_reply, staleness, minlength=len(rows))
    most = np.full(len(rows), -1, np.int64)
    np.maximum.at(most, of_reply, staleness)
    began_ns, ended_ns = (
        np.array([round(getattr(row, name) * 1e9) for row in rows], np.int64)
        for name in ("began_at_s", "ended_at_s")
    )
    asked_ns, instants_ns = dispatches.asked_ns(), np.concatenate([began_ns, ended_ns])
    work_ns = accumulated(asked_ns, dispatches.ended_ns(), np.ones_like(asked_ns), instants_ns)
    during_ns = work_ns[len(rows) :] - work_ns[: len(rows)]
    lasted_ns = ended_ns - began_ns
    return {
        "merges": np.bincount(np.searchsorted(numbers, of_merges), minlength=len(rows)).astype(np.int32),
        "staleness_mean": _quotient(total, count),
        "staleness_max": np.ma.masked_equal(most, -1),
        "concurrency_mean": _quotient(during_ns, lasted_ns),
    }


def line(summary: dict[str, Any]) -> str | None:
    """Return the statistics of one run in words; None if no reply was stale, as in synchronous rounds."""
    staleness, concurrency = summary["staleness"], summary["concurrency"]
    if not staleness["max"]:
        return None
    mean, at_work = number_format.number(staleness["mean"]), number_format.number(concurrency["mean"])
    return (
        f"staleness {mean}, 99 % of the replies at most {staleness['p99']}, largest {staleness['max']}; "
        f"{at_work} clients at work; {number_format.count(summary['merges_per_hour'])} merges an hour"
    )


def _quotient(numerator: Array, denominator: Array) -> Array:
    """Return the quotients; NaN where there is nothing to divide by."""
    quotient = np.full(len(denominator), np.nan)
    np.divide(numerator, denominator, out=quotient, where=denominator > 0)
    return quotient


def _most_at_work(asked_ns: Array, ended_ns: Array) -> int:
    """Return the largest number of dispatches under way at once; one that ends makes room for the next."""
    times = np.concatenate([ended_ns, asked_ns])
    changes = np.repeat(np.array([-1, 1]), len(asked_ns))
    lasting = np.tile(ended_ns > asked_ns, 2)
    order = np.argsort(times[lasting], kind="stable")
    return int(np.cumsum(changes[lasting][order]).max(initial=0))


def accumulated(began: Array, ended: Array, rates: Array, instants: Array) -> Array:
    """Return what has come together by some instants of what flows evenly from begins to ends."""

    def since(starts: Array) -> Array:
        """Return what would have come together if nothing ended."""
        order = np.argsort(starts, kind="stable")
        ordered, flowing = starts[order], rates[order]
        total, moment = (np.concatenate([[0], np.cumsum(flow)]) for flow in (flowing, flowing * ordered))
        before = np.searchsorted(ordered, instants)
        passed: Array = total[before] * instants - moment[before]
        return passed

    whole: Array = since(began) - since(ended)
    return whole
