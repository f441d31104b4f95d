"""The tables of a run as Parquet files, which pandas, polars and DuckDB open.

==================== ==========================================================================
``rounds``           one row per round, and one each for what came before and after, if anything
``clients``          one row per client of the population, selected or not
``evaluations``      one row per evaluation and client measured
``dispatches``       one row per dispatch to a client: where its time went, and how it ended
``messages``         one row per frame: the ledger
==================== ==========================================================================

Names of columns carry SI units: ``_s``, ``_bytes``, ``_bps``, ``_flops``; shares are in ``[0, 1]``; null
stands for what was not measured. ``bytes_*`` are frames of messages, ``data_*`` bytes of frames that carry
raw samples, and neither is part of the other; *up* is towards the server. In ``rounds`` and ``clients``,
``download_s``, ``compute_s``, ``upload_s``, ``away_s``, ``waiting_s``, ``wasted_s`` and ``wasted_bytes`` are
sums over dispatches (:mod:`fedsim.report.cost_breakdown`), and each cause of drops that occurs has a column
``dropped_*``. In ``messages``, ``bytes`` is the length of a frame, and ``overhead`` the bytes that protocols
add to it on the link. Rows of ``rounds`` sum to what the summary says of the run.
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
from fedsim.fleet import Fleet
from fedsim.fleet.device import QUANTITIES
from fedsim.params import Array
from fedsim.report import cost_breakdown
from fedsim.report.folder import new
from fedsim.runtime.parts import Parts
from fedsim.runtime.records.dispatch_table import PHASES, DispatchTable
from fedsim.runtime.records.result import RoundRow
from fedsim.runtime.run import RunResult

SCHEMA = 1
"""Version of the columns; it grows when one changes its meaning, its name or its type."""

Columns = Mapping[str, tuple[str, Any]]
"""Name of a column → its Arrow type (``words`` for text that repeats itself) and its values."""

TRAFFIC = (
    "frames_up",
    "frames_down",
    "bytes_up",
    "bytes_down",
    "parameters_up",
    "parameters_down",
    "data_up",
    "data_down",
    "overhead_up",
    "overhead_down",
)


def write_tables(folder: Path, parts: Parts, result: RunResult, place: Path) -> None:
    """Write all tables of a run into a folder, which belongs to a place.

    Raises:
        FileError: It cannot be written.
    """
    tables = {
        "rounds": rounds(result),
        "clients": clients(parts, result),
        "evaluations": evaluations(result.rounds),
        "dispatches": dispatches(result.dispatches),
        "messages": messages(result.ledger),
    }
    for name, columns in tables.items():
        with new(folder / f"{name}.parquet", place) as file:
            write_table(file, name, columns)


def rounds(result: RunResult) -> Columns:
    """Return the rounds as columns."""
    rows = result.rounds
    accuracy = [row.accuracy for row in rows]
    return {
        "round": ("int32", [row.round for row in rows]),
        "began_at_s": ("double", [row.began_at_s for row in rows]),
        "ended_at_s": ("double", [row.ended_at_s for row in rows]),
        **{
            name: ("int32", [getattr(row, name) for row in rows])
            for name in ("asked", "merged", "dropped", "rejected", "late")
        },
        **{name: ("int64", [getattr(row.traffic, name) for row in rows]) for name in TRAFFIC},
        **cost_breakdown.by_round(result),
        "accuracy_mean": ("double", [a and a.mean for a in accuracy]),
        "accuracy_std": ("double", [a and a.std for a in accuracy]),
        "accuracy_worst_decile": ("double", [a and a.worst_decile for a in accuracy]),
        "accuracy_weighted_mean": ("double", [a and a.weighted_mean for a in accuracy]),
        "accuracy_global": ("double", [a and a.global_ for a in accuracy]),
        "loss_mean": ("double", [a and a.mean_loss for a in accuracy]),
        "loss_std": ("double", [a and a.std_loss for a in accuracy]),
        "loss_global": ("double", [a and a.global_loss for a in accuracy]),
    }


def clients(parts: Parts, result: RunResult) -> Columns:
    """Return the population as columns: devices, data, tallies, traffic, last accuracy and loss."""
    fleet, data, population = parts.fleet, parts.data, parts.data.num_clients
    accuracy, loss = np.full(population, np.nan), np.full(population, np.nan)
    if (final := result.final) is not None:
        accuracy[final.clients], loss[final.clients] = final.personal, final.losses
    return {
        "client": ("int64", np.arange(population)),
        "group": ("words", _by_group(fleet, "label")),
        "model": ("words", _models(fleet)),
        **{quantity.attribute: ("double", fleet.values(name)) for name, quantity in QUANTITIES.items()},
        "num_train": ("int64", data.sizes("train")),
        "num_val": ("int64", data.sizes("val")),
        "num_test": ("int64", data.sizes("test")),
        **{name: ("int32", values) for name, values in result.by_client.items()},
        **{name: ("int64", values) for name, values in traffic_by_client(result.ledger, population).items()},
        **cost_breakdown.by_client(result, population),
        "accuracy": ("double", accuracy),
        "loss": ("double", loss),
    }


def evaluations(rows: Sequence[RoundRow]) -> Columns:
    """Return the accuracy and the loss of each client at each evaluation as columns."""
    measured = [(row.round, row.accuracy) for row in rows if row.accuracy is not None]
    lengths = [len(accuracy.clients) for _, accuracy in measured]

    def joined(arrays: Sequence[Array]) -> Array:
        return np.concatenate(arrays) if arrays else np.empty(0)

    return {
        "round": ("int32", np.repeat(np.array([number for number, _ in measured], np.int32), lengths)),
        "client": ("int64", joined([accuracy.clients for _, accuracy in measured])),
        "accuracy": ("double", joined([accuracy.personal for _, accuracy in measured])),
        "loss": ("double", joined([accuracy.losses for _, accuracy in measured])),
        "num_samples": ("int64", joined([accuracy.weights for _, accuracy in measured])),
    }


def dispatches(table: DispatchTable) -> Columns:
    """Return every dispatch, in the order of sending, as columns."""
    columns = table.columns()
    types = {
        "client": "int64",
        "dispatch": "int32",
        "round": "int32",
        "exchange": "words",
        "asked_at_s": "double",
        "ended_at_s": "double",
        **{f"{phase}_s": "double" for phase in PHASES},
        "outcome": "words",
        "cause": "words",
    }
    return {name: (kind, columns[name]) for name, kind in types.items()}


def messages(ledger: Ledger) -> Columns:
    """Return every frame, in the order of sending, as columns."""
    columns = ledger.columns()
    types = {
        "round": "int32",
        "client": "int64",
        "dispatch": "int32",
        "exchange": "words",
        "kind": "words",
        "up": "bool",
        "data": "bool",
        "bytes": "int64",
        "parameters": "int64",
        "overhead": "int64",
        "arrivals": "int32",
        "outcome": "words",
    }
    return {name: (kind, columns[name]) for name, kind in types.items()}


def traffic_by_client(ledger: Ledger, population: int) -> dict[str, Array]:
    """Return the traffic of each client, int64 ``[K]`` for each name of :data:`TRAFFIC`."""
    columns = ledger.columns()
    client, data, ones = columns["client"], columns["data"], np.ones(len(ledger), np.int64)
    sums = {}
    for name in TRAFFIC:
        what, _, way = name.partition("_")
        chosen = columns["up"] if way == "up" else ~columns["up"]
        if what not in ("frames", "overhead"):
            chosen = chosen & (data if what == "data" else ~data)
        values = ones if what == "frames" else columns["bytes" if what == "data" else what]
        total = np.zeros(population, np.int64)
        np.add.at(total, client[chosen], values[chosen])
        sums[name] = total
    return sums


def write_table(file: BinaryIO, name: str, columns: Columns) -> None:
    """Write one table, as Parquet.

    Args:
        file: Takes its bytes; what it raises comes out.
        name: What the table is, for its metadata.
        columns: Its columns, of equal length; NaN becomes null.
    """
    words = pa.dictionary(pa.int32(), pa.string())
    fields, arrays = [], []
    for column, (kind, values) in columns.items():
        if kind == "words":
            fields.append((column, words))
            arrays.append(_array(values, pa.string()).dictionary_encode())
        else:
            fields.append((column, pa.type_for_alias(kind)))
            arrays.append(_array(values, pa.type_for_alias(kind)))
    metadata = {"fedsim_table": name, "fedsim_schema": str(SCHEMA)}
    table = pa.Table.from_arrays(arrays, schema=pa.schema(fields, metadata=metadata))
    parquet.write_table(table, file, compression="zstd")


def _array(values: Any, kind: Any) -> Any:
    # A cast first: Arrow takes an array only as the type that it has.
    if isinstance(values, np.ndarray) and values.dtype != object:
        values = values.astype(kind.to_pandas_dtype(), copy=False)
    return pa.array(values, kind, from_pandas=True)


def _models(fleet: Fleet) -> Array:
    labels = np.empty(len(fleet), object)
    for group in fleet.groups:
        for label, own in group.shares():
            labels[group.start : group.stop][own] = label
    return labels


def _by_group(fleet: Fleet, attribute: str) -> Array:
    names = np.array([getattr(group, attribute) for group in fleet.groups], dtype=object)
    return np.repeat(names, [group.stop - group.start for group in fleet.groups])
