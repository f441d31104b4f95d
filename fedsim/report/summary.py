"""``summary.json``: a run in numbers.

Everything but ``wall_s`` is the same on every host. None (``null``) stands for what was not measured, as the
accuracy of a regression, and for a loss that is not finite. ``loss`` is the mean over the samples of a test
set of the cross-entropy, nat, or, for a regression, of the squared error. ``finite`` is false where at the
end an evaluated model, or a loss of the last evaluation, is NaN or infinite. ``divergence`` says in what way
the run has diverged (:mod:`fedsim.report.divergence`); None if it has not. ``ineligible`` names the first 20
clients that are never selected because they cannot hold their job in memory. ``macro_f1`` is there under
``evaluation.per_class``: that of the last evaluation by test set (:mod:`fedsim.report.tables`). ``faults``
counts those that have struck by kind (of an attack the replies of attackers that were merged), and is there
where the scenario has any. ``energy`` is there under ``energy`` (:mod:`fedsim.report.energy`). ``edges`` is
there where there are any: how often they have averaged replies, and the frames between them and the server,
which count in no other figure; ``at_server`` is the length of all frames over the server's link.
``emulation`` is there for emulations: how late the host was.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedsim import __version__
from fedsim.errors import OutputError
from fedsim.network.edges import NO_EDGE
from fedsim.report import merge_statistics, number_format
from fedsim.report.atomic_folder import MARK
from fedsim.report.cost_breakdown import Summary, breakdown, wasted_shares
from fedsim.report.energy import Energy
from fedsim.report.read_results import read_object
from fedsim.report.run_columns import BYTES, DATA, FRAMES, PARAMETERS, PLAIN
from fedsim.report.unfinished_runs import is_unfinished, read_state
from fedsim.runtime.evaluation import TEST_SETS, Accuracy
from fedsim.runtime.parts import Parts
from fedsim.runtime.run import RunResult
from fedsim.scenario.build import Plan

MAX_NAMED = 20
"""Ineligible clients that are named at most; the table of clients has all of them, with their memory."""


def summarise(
    plan: Plan,
    result: RunResult,
    wall_s: float,
    divergence: str | None = None,
    energy: Energy | None = None,
) -> Summary:
    """Return the summary of a finished run; ``divergence`` is what is said of it if it has diverged."""
    totals, final = result.totals, result.final

    def last(name: str) -> float | None:
        return finite(getattr(final, name, None))

    return {
        "fedsim": __version__,
        "scenario": plan.name,
        "algorithm": plan.algorithm,
        "seed": plan.parts.seed,
        "rounds": result.num_rounds,
        "stopped_by": result.stopped_by,
        "clients": plan.parts.data.num_clients,
        "ineligible": ineligible(plan.parts),
        "simulated_s": result.simulated_s,
        "wall_s": round(wall_s, 3),
        **{name: getattr(totals, name) for name in (*BYTES, *PLAIN, *DATA, *FRAMES, *PARAMETERS)},
        "accuracy": {
            "personal_mean": last("mean"),
            "personal_std": last("std"),
            "personal_worst_decile": last("worst_decile"),
            "global": last("global_"),
            "best": finite(result.best),
            "best_global": finite(result.best_global),
            "others": dict(final.others) if final else {},
        },
        "loss": {
            "personal_mean": last("mean_loss"),
            "personal_std": last("std_loss"),
            "global": last("global_loss"),
            "best": finite(result.best_loss),
        },
        "drops": result.drops.total(),
        "rejected": result.rejections.total(),
        "rejected_by_reason": {reason: result.rejections[reason] for reason in sorted(result.rejections)},
        "finite": result.non_finite is None,
        "divergence": divergence,
        "trace_hash": result.trace_hash,
        "model_hash": result.model_hash,
        **(costs := breakdown(result)),
        "wasted": wasted_shares(costs),
        **merge_statistics.merge_figures(result),
        "codec_saturated": result.num_saturated,
        **({"faults": _faults(plan.parts, result)} if plan.parts.faults else {}),
        **({"energy": energy.summary()} if energy is not None else {}),
        **({"edges": of_edges} if (of_edges := _edges(plan.parts, result)) else {}),
        **({"emulation": dict(result.emulation)} if result.emulation is not None else {}),
        **({"macro_f1": _macro_f1(final)} if plan.parts.evaluation.per_class else {}),
    }


def read_summary(folder: Path) -> Summary:
    """Return the summary of a run from its folder.

    Of an unfinished one it is that of the rounds until its last checkpoint, and has its ``status`` too.
    """
    if is_unfinished(folder):
        state = read_state(folder)
        if state["summary"] is None:
            raise OutputError(f"the run in {folder} has nothing to show yet: wait for its first checkpoint")
        return {**state["summary"], "status": state["status"]}
    return read_object(folder / MARK)


def _faults(parts: Parts, result: RunResult) -> dict[str, int]:
    """Return how many faults have struck, by kind."""
    counts, attacks = Counter(result.faults), parts.attacks
    if attacks is not None:
        with_reply = [one.name for one in parts.algorithm.exchanges if one.reply is not None]
        columns, kinds = result.dispatches.columns(), attacks.of_clients()
        merged = (columns["outcome"] == "merged") & np.isin(columns["exchange"].astype(str), with_reply)
        counts.update(dict.fromkeys(filter(None, kinds), 0))
        counts.update(filter(None, kinds[columns["client"][merged]]))
    return dict(sorted(counts.items()))


def _edges(parts: Parts, result: RunResult) -> dict[str, int]:
    """Return what the summary says of edges; nothing without any."""
    frames, edges = result.edge_frames, parts.edges
    if edges is None or frames is None:
        return {}
    totals, columns = frames.totals(), result.ledger.columns()
    is_direct = edges.of()[columns["client"]] == NO_EDGE
    at_server = {
        f"at_server_{way}": totals[f"bytes_{way}"]
        + int(columns["bytes"][is_direct & (columns["up"] == (way == "up"))].sum())
        for way in ("up", "down")
    }
    return {"count": len(edges.cell), "means": frames.num_means, **totals, **at_server}


def _macro_f1(final: Accuracy | None) -> dict[str, float | None]:
    confusions = final.confusions if final else {}
    return {name: confusions[name].macro_f1 if name in confusions else None for name in TEST_SETS}


def ineligible(parts: Parts) -> dict[str, Any]:
    """Return what the summary says: their ``count``, the first of them as ``clients``, and the ``reason``.

    The reason is ``memory``, or None where there are none.
    """
    clients = np.flatnonzero(~parts.holds_job())
    return {
        "count": len(clients),
        "clients": clients[:MAX_NAMED].tolist(),
        "reason": "memory" if len(clients) else None,
    }


def ineligible_line(listed: Mapping[str, Any], population: int) -> str | None:
    """Return the same in a line for people; None where there are none."""
    if not listed["count"]:
        return None
    named = ", ".join(map(str, listed["clients"]))
    if more := listed["count"] - len(listed["clients"]):
        named += f" and {more} more"
    of = number_format.several(population, "client")
    return f"{listed['count']} of {of}, too little memory to hold their job: {named}"


def finite(value: float | None) -> float | None:
    """Return the value, or None where it is NaN or infinite: JSON has no such numbers."""
    return value if value is not None and math.isfinite(value) else None
