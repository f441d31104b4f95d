"""What a run has shown by the time of each evaluation, read from its folder."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import TypeAlias

import numpy as np

from fedsim.params import Array
from fedsim.report.cost_breakdown import Columns
from fedsim.report.read_parquet import read_columns
from fedsim.report.run_columns import ENERGY

SUMS = {
    "bytes_up": ("bytes_up", "data_up"),
    "bytes_down": ("bytes_down", "data_down"),
    "bytes_plain_up": ("bytes_plain_up", "data_up"),
    "bytes_plain_down": ("bytes_plain_down", "data_down"),
    "parameters_up": ("parameters_up",),
    "parameters_down": ("parameters_down",),
    "work_s": ("download_s", "compute_s", "upload_s"),
    "wasted_s": ("wasted_s",),
    "wasted_bytes": ("wasted_bytes",),
    "dropped": ("dropped",),
    "joules": (*ENERGY, "server_j"),
    "carbon_g": ("carbon_g",),
}
"""Columns that hold sums since the start of the run, and of which columns of ``rounds`` they are sums. Bytes
include those of raw samples, since all of them have to be sent."""

MEASURED = {
    "accuracy_personal_mean": "accuracy_mean",
    "accuracy_std": "accuracy_std",
    "accuracy_worst_decile": "accuracy_worst_decile",
    "accuracy_global": "accuracy_global",
    "loss_personal_mean": "loss_mean",
    "loss_global": "loss_global",
    "staleness_mean": "staleness_mean",
}
"""Columns that are those of ``rounds``."""

Curves: TypeAlias = Mapping[int, Columns]
"""The curves of a setting's runs that have ended, by seed."""

JAIN = "accuracy_jain"

STALENESS = "staleness_so_far"
"""The mean staleness of all replies that were merged since the start of the run."""


_PLAIN = ("bytes_plain_up", "bytes_plain_down")
_ROUNDS = (
    "round",
    "ended_at_s",
    "merged",
    *dict.fromkeys(chain.from_iterable(SUMS.values())),
    *MEASURED.values(),
)
"""Columns of ``rounds`` that a curve is made of."""

_ENERGY = (*SUMS["joules"], *SUMS["carbon_g"])
"""Those that only a run with energy has."""


def read_curve(folder: Path) -> Columns:
    """Return a row for each evaluation of a run: round, time, sums since the start, and what was measured.

    :data:`fedsim.studies.study_columns.EVALUATIONS` has its columns. NaN stands for what was not measured.
    """
    rounds = dict(read_columns(folder / "rounds.parquet", _ROUNDS, optional=(*_PLAIN, *_ENERGY)))
    for name in _PLAIN:  # runs of before there were codecs
        rounds.setdefault(name, rounds[name.replace("_plain", "")])
    for name in _ENERGY:
        rounds.setdefault(name, np.full(len(rounds["round"]), np.nan))
    merged = np.cumsum(rounds["merged"])
    stale = np.cumsum(np.nan_to_num(rounds["staleness_mean"].astype(float)) * rounds["merged"])
    so_far = np.divide(stale, merged, out=np.full(len(merged), np.nan), where=merged > 0)
    curve = {**curve_of(rounds), STALENESS: so_far[_evaluated(rounds)]}
    of_clients = read_columns(folder / "evaluations.parquet", ("round", "accuracy"))  # in order of rounds
    ends = [np.searchsorted(of_clients["round"], curve["round"], side) for side in ("left", "right")]
    curve[JAIN] = np.array(
        [jain(of_clients["accuracy"][slice(*of)]) for of in zip(*ends, strict=True)], float
    )
    return curve


def curve_of(rounds: Columns) -> dict[str, Array]:
    """Return what columns of ``rounds`` tell of a curve; of a run that goes on they are fewer."""
    there = _evaluated(rounds)
    sums = {
        name: np.cumsum(sum(rounds[part] for part in parts))[there]
        for name, parts in SUMS.items()
        if rounds.keys() >= {*parts}
    }
    measured = {
        name: rounds[column][there].astype(float) for name, column in MEASURED.items() if column in rounds
    }
    return {"round": rounds["round"][there], "simulated_s": rounds["ended_at_s"][there], **sums, **measured}


def _evaluated(rounds: Columns) -> Array:
    """Return in which rounds something was measured, bool ``[rounds]``."""
    names = ("accuracy_mean", "accuracy_global", "loss_mean", "loss_global")
    there: Array = np.any([~np.isnan(rounds[name].astype(float)) for name in names], axis=0)
    return there


def jain(values: Array) -> float:
    """Return Jain's index of fairness, ``(sum x)^2 / (n sum x^2)``, of values that are not NaN.

    It is NaN where there are no values, and 1 where all are 0.
    """
    present = values[~np.isnan(values)]
    if not len(present):
        return np.nan
    squares = len(present) * float(np.sum(present**2))
    return float(np.sum(present)) ** 2 / squares if squares else 1.0
