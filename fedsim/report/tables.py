"""The tables of a run as Parquet files, which pandas, polars and DuckDB open.

==================== ==========================================================================
``rounds``           one row per round, and one each for what came before and after, if anything
``clients``          one row per client of the population, selected or not
``evaluations``      one row per evaluation and client measured
``dispatches``       one row per dispatch to a client: where its time went, and how it ended
``messages``         one row per frame: the ledger
``classes``          under ``evaluation.per_class``, one row per evaluation, test set and class
``confusion``        there too, one row per evaluation, test set, true and predicted class
==================== ==========================================================================

Names of columns carry SI units: ``_s``, ``_bytes``, ``_bps``, ``_flops``; shares are in ``[0, 1]``; null
stands for what was not measured. ``bytes_*`` are frames of messages, ``data_*`` bytes of frames that carry
raw samples, and neither is part of the other; *up* is towards the server. In ``rounds`` and ``clients``,
``download_s``, ``compute_s``, ``upload_s``, ``away_s``, ``waiting_s``, ``wasted_s`` and ``wasted_bytes`` are
sums over dispatches (:mod:`fedsim.report.cost_breakdown`), and each cause of drops that occurs has a column
``dropped_*``. Of a dispatch, ``version`` is how often rounds had merged before it, and ``staleness`` how
often they did until its own merge (:mod:`fedsim.report.merge_figures`). Columns of ``classes`` and
``confusion`` are explained in :mod:`fedsim.report.class_tables`. In ``messages``, ``bytes`` is the
length of a frame, and ``overhead`` the bytes that protocols add to it on the link. Rows of ``rounds`` sum
to what the summary says of the run.
Each file's metadata holds ``fedsim_table`` and ``fedsim_schema``, the version of these columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from fedsim.bus import Ledger
from fedsim.data import SPLITS
from fedsim.fleet.device import QUANTITIES
from fedsim.params import Array
from fedsim.report import class_tables, cost_breakdown, merge_figures
from fedsim.report.atomic_folder import new
from fedsim.report.cost_breakdown import Columns, sums
from fedsim.runtime.parts import Parts
from fedsim.runtime.records.result import RoundRow
from fedsim.runtime.run import RunResult

SCHEMA = 1
"""Version of the columns; it grows when one changes its meaning, its name or its type."""

TRAFFIC = tuple(
    f"{what}_{way}"
    for what in ("frames", "bytes", "parameters", "data", "overhead")
    for way in ("up", "down")
)
"""Columns of ``rounds`` and ``clients``: the sums over frames of :class:`fedsim.bus.Totals`."""

MEASURED = {
    "accuracy_mean": "mean",
    "accuracy_std": "std",
    "accuracy_worst_decile": "worst_decile",
    "accuracy_weighted_mean": "weighted_mean",
    "accuracy_global": "global_",
    "loss_mean": "mean_loss",
    "loss_std": "std_loss",
    "loss_global": "global_loss",
}
"""Columns of ``rounds``, and the attributes of an evaluation that they hold."""


def write_tables(folder: Path, parts: Parts, result: RunResult, place: Path) -> None:
    """Write all tables of a run into a folder, which belongs to a place.

    Raises:
        FileError: It cannot be written.
    """
    tables = {
        "rounds": rounds(result),
        "clients": clients(parts, result),
        "evaluations": evaluations(result.rounds),
        "dispatches": result.dispatches.columns(),
        "messages": result.ledger.columns(),
    }
    if parts.evaluation.per_class:
        tables["classes"] = class_tables.classes(result.rounds, parts.data.class_names)
        tables["confusion"] = class_tables.confusion(result.rounds)
    for name, columns in tables.items():
        with new(folder / f"{name}.parquet", place) as file:
            write_table(file, name, columns)


def rounds(result: RunResult) -> Columns:
    """Return the rounds as columns."""
    rows = result.rounds

    def column(name: str, kind: type) -> Array:
        return np.array([getattr(row, name) for row in rows], kind)

    counts = ("asked", "merged", "dropped", "rejected", "late")
    return {
        "round": column("round", np.int32),
        "began_at_s": column("began_at_s", float),
        "ended_at_s": column("ended_at_s", float),
        **{name: column(name, np.int32) for name in counts},
        **{name: np.array([getattr(row.traffic, name) for row in rows], np.int64) for name in TRAFFIC},
        **cost_breakdown.by_round(result),
        **merge_figures.by_round(result),
        **{
            name: np.array([row.accuracy and getattr(row.accuracy, attribute) for row in rows], float)
            for name, attribute in MEASURED.items()
        },
    }


def clients(parts: Parts, result: RunResult) -> Columns:
    """Return the population as columns: devices, data, tallies, traffic, last accuracy and loss."""
    fleet, data, population = parts.fleet, parts.data, parts.data.num_clients
    groups, models = np.empty(population, object), np.empty(population, object)
    for group in fleet.groups:
        groups[group.start : group.stop] = group.label
        for label, own in group.shares():
            models[group.start : group.stop][own] = label
    accuracy, loss = np.full(population, np.nan), np.full(population, np.nan)
    if (final := result.final) is not None:
        accuracy[final.clients], loss[final.clients] = final.personal, final.losses
    return {
        "client": np.arange(population),
        "group": groups,
        "model": models,
        **{quantity.attribute: fleet.values(name).astype(float) for name, quantity in QUANTITIES.items()},
        **{f"num_{split}": data.sizes(split).astype(np.int64) for split in SPLITS},
        **{name: tally.astype(np.int32) for name, tally in result.by_client.items()},
        **traffic_by_client(result.ledger, population),
        **cost_breakdown.by_client(result, population),
        "accuracy": accuracy,
        "loss": loss,
    }


def evaluations(rows: Sequence[RoundRow]) -> Columns:
    """Return the accuracy and the loss of each client at each evaluation as columns."""
    measured = [(row.round, row.accuracy) for row in rows if row.accuracy is not None]
    lengths = [len(accuracy.clients) for _, accuracy in measured]

    def joined(name: str, kind: type) -> Array:
        arrays = [getattr(accuracy, name) for _, accuracy in measured]
        return np.concatenate([np.empty(0, kind), *arrays]).astype(kind, copy=False)

    return {
        "round": np.repeat(np.array([number for number, _ in measured], np.int32), lengths),
        "client": joined("clients", np.int64),
        "accuracy": joined("personal", float),
        "loss": joined("losses", float),
        "num_samples": joined("weights", np.int64),
    }


def traffic_by_client(ledger: Ledger, population: int) -> Columns:
    """Return the traffic of each client, int64 ``[K]`` for each name of :data:`TRAFFIC`."""
    columns = ledger.columns()
    columns["frames"] = np.ones(len(ledger), np.int64)
    traffic = {}
    for name in TRAFFIC:
        what, _, way = name.partition("_")
        chosen = columns["up"] == (way == "up")
        if what not in ("frames", "overhead"):
            chosen &= columns["data"] == (what == "data")
        values = columns["bytes" if what == "data" else what]
        traffic[name] = sums(columns["client"][chosen], values[chosen], population)
    return traffic


def write_table(file: BinaryIO, name: str, columns: Mapping[str, Array]) -> None:
    """Write one table, as Parquet.

    Args:
        file: Takes its bytes; what it raises comes out.
        name: What the table is, for its metadata.
        columns: Its columns, of equal length: words as objects; NaN becomes null.
    """
    arrays = {column: _arrow(values) for column, values in columns.items()}
    metadata = {"fedsim_table": name, "fedsim_schema": str(SCHEMA)}
    parquet.write_table(pa.table(arrays, metadata=metadata), file, compression="zstd")


def _arrow(values: Array) -> Any:
    if values.dtype == object:
        return pa.array(values, pa.string()).dictionary_encode()
    return pa.array(values, from_pandas=True)
