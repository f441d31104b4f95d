"""The tables of a run as Parquet files, which pandas, polars and DuckDB open.

:mod:`fedsim.report.run_columns` says what each column means. A file has that too: the metadata of a field are
its ``description`` and its ``unit``, those of the file ``fedsim_table``, its name, and ``fedsim_schema``, the
version of the columns.

In tables of classes shares are null where they would divide by 0, and samples of the global test set count
once for each distinct global model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from fedsim.bus import Ledger
from fedsim.data import SPLITS, FederatedData
from fedsim.durable import replacing
from fedsim.engine.confusion import Confusion
from fedsim.fleet.device import QUANTITIES
from fedsim.fleet.power import ALL_QUANTITIES
from fedsim.params import Array
from fedsim.report import cost_breakdown, merge_statistics
from fedsim.report.atomic_folder import MEND
from fedsim.report.columns import Table
from fedsim.report.cost_breakdown import Columns, sums
from fedsim.report.energy import Energy
from fedsim.report.run_columns import CLASSES, CONFUSION, EVALUATIONS, OUTCOMES, RUN_TABLES, SUMMED, TRAFFIC
from fedsim.runtime.parts import Parts
from fedsim.runtime.records.result import RoundRow
from fedsim.runtime.run import RunResult

SCHEMA = 6
"""Version of the columns; it grows when one is added, or changes its meaning, its name or its type."""

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


def write_tables(
    folder: Path, parts: Parts, result: RunResult, place: Path, energy: Energy | None = None
) -> None:
    """Write all tables of a run into a folder, which belongs to a place."""
    tables = {
        "rounds": rounds(result, energy),
        "clients": clients(parts, result, energy),
        "evaluations": evaluations(result.rounds),
        "dispatches": dispatches(parts, result, energy),
        "messages": result.ledger.columns(),
    }
    if (held := client_classes(parts.data)) is not None:
        tables["client_classes"] = held
    if parts.evaluation.per_class:
        tables["classes"] = classes(result.rounds, parts.data.class_names)
        tables["confusion"] = confusion(result.rounds)
    if parts.edges is not None and result.edge_frames is not None:
        tables["edge_messages"] = result.edge_frames.columns(parts.edges.names)
    for name, columns in tables.items():
        with replacing(folder / RUN_TABLES[name].file, place, MEND) as file:
            write_table(file, RUN_TABLES[name], columns)


def rounds(result: RunResult, energy: Energy | None = None) -> Columns:
    """Return the rounds as columns."""
    rows = result.rounds
    return {
        **_counted(rows),
        **cost_breakdown.by_round(result, energy),
        **merge_statistics.by_round(result),
        **_measured(rows),
    }


def rounds_so_far(rows: Sequence[RoundRow]) -> Columns:
    """Return the columns of rounds that are known before the run has ended."""
    return {**_counted(rows), **_measured(rows)}


def _counted(rows: Sequence[RoundRow]) -> Columns:
    traffic = {name: np.array([getattr(row.traffic, name) for row in rows], np.int64) for name in TRAFFIC}
    return {
        **{
            name: np.array([getattr(row, name) for row in rows])
            for name in ("round", "began_at_s", "ended_at_s", *OUTCOMES)
        },
        **traffic,
        **{f"cumulative_{name}": np.cumsum(traffic[name]) for name in SUMMED},
    }


def _measured(rows: Sequence[RoundRow]) -> Columns:
    return {
        name: np.array([row.accuracy and getattr(row.accuracy, attribute) for row in rows], float)
        for name, attribute in MEASURED.items()
    }


def clients(parts: Parts, result: RunResult, energy: Energy | None = None) -> Columns:
    """Return the clients as columns: devices, data, counts, traffic, last accuracy and loss."""
    fleet, data, population = parts.fleet, parts.data, parts.data.num_clients
    groups, models = np.empty(population, object), np.empty(population, object)
    for group in fleet.groups:
        groups[group.start : group.stop] = group.label
        for label, own in group.shares():
            models[group.start : group.stop][own] = label
    accuracy, loss, attacks = np.full(population, np.nan), np.full(population, np.nan), parts.attacks
    if (final := result.final) is not None:
        accuracy[final.clients], loss[final.clients] = final.personal, final.losses
    return {
        "client": np.arange(population),
        "group": groups,
        "label": fleet.labels(),
        "model": models,
        **{
            quantity.attribute: fleet.values(name).astype(float)
            for name, quantity in (QUANTITIES if energy is None else ALL_QUANTITIES).items()
        },
        **{f"num_{split}": data.sizes(split).astype(np.int64) for split in SPLITS},
        **result.by_client,
        **traffic_by_client(result.ledger, population),
        **cost_breakdown.by_client(result, population),
        **({} if energy is None else energy.sums(result.dispatches.client(), population)),
        "accuracy": accuracy,
        "loss": loss,
        **({} if parts.cells is None else {"cell": parts.cells.labels()}),
        **({} if attacks is None else {"attack": attacks.of_clients()}),
        **({} if result.battery_levels is None else {"battery_level": result.battery_levels}),
    }


def dispatches(parts: Parts, result: RunResult, energy: Energy | None = None) -> Columns:
    """Return the dispatches as columns, with the label of each one's client."""
    columns = result.dispatches.columns()
    joules = {} if energy is None else energy.joules
    return {**columns, "label": parts.fleet.labels()[columns["client"]], **joules}


def evaluations(rows: Sequence[RoundRow]) -> Columns:
    """Return the accuracy and the loss of each client at each evaluation as columns."""
    measured = [(row.round, row.accuracy) for row in rows if row.accuracy is not None]
    return _stacked(
        EVALUATIONS,
        [(number, its.clients, its.personal, its.losses, its.weights) for number, its in measured],
    )


def traffic_by_client(ledger: Ledger, population: int) -> Columns:
    """Return the traffic of each client, int64 ``[K]`` for each name of :data:`TRAFFIC`."""
    columns = ledger.columns()
    columns["frames"] = np.ones(len(ledger), np.int64)
    traffic = {}
    for name in TRAFFIC:
        what, _, way = name.rpartition("_")
        chosen = columns["up"] == (way == "up")
        if what not in ("frames", "overhead"):
            chosen &= columns["data"] == (what == "data")
        values = columns["bytes" if what == "data" else what]
        traffic[name] = sums(columns["client"][chosen], values[chosen], population)
    return traffic


def write_table(file: BinaryIO, table: Table, columns: Columns) -> None:
    """Write a table, as Parquet."""
    parquet.write_table(arrow_table(table, columns), file, compression="zstd")


def arrow_table(table: Table, columns: Mapping[str, Array | Sequence[Any]]) -> pa.Table:
    """Return columns as an Arrow table with descriptions and units as metadata; NaN becomes null."""
    fields, arrays = [], []
    for name, values in columns.items():
        column = table.column(name)
        array = _arrow(values, column.type or None)
        metadata = {"description": column.description, "unit": column.unit}
        fields.append(pa.field(name, array.type, metadata=metadata))
        arrays.append(array)
    metadata = {"fedsim_table": table.name, "fedsim_schema": str(SCHEMA)}
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields, metadata=metadata))


def arrow_rows(table: Table, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return rows with the same names, at least one, as :func:`arrow_table` does columns."""
    return arrow_table(table, {name: [row[name] for row in rows] for name in rows[0]})


def _arrow(values: Array | Sequence[Any], kind: str | None) -> Any:
    if isinstance(values, np.ndarray) and values.dtype == object:
        return pa.array(values, pa.string()).dictionary_encode()
    try:
        return pa.array(values, kind, from_pandas=True)
    except pa.ArrowException:
        if kind is not None:
            raise
        return pa.array(map(str, values))  # several types together are text


def client_classes(data: FederatedData) -> Columns | None:
    """Return how many training samples of which class each client has, where it has any, as columns.

    None where there are no classes: in a regression, of counts only, and where labels are the next tokens of
    texts.
    """
    task, flat = data.task, data.holdings["train"].flat
    if flat is None or task.kind != "classification" or task.vocabulary == task.num_outputs:
        return None
    holder = np.repeat(np.arange(data.num_clients), data.sizes("train"))
    cells, num_samples = np.unique(holder * task.num_outputs + data.y[flat], return_counts=True)
    client, number = np.divmod(cells, task.num_outputs)
    return {
        "client": client,
        "class": number,
        "class_name": _named(number, data.class_names),
        "num_samples": num_samples,
    }


def classes(rows: Sequence[RoundRow], names: Sequence[str] | None) -> Columns:
    """Return the counts and figures of each class at each evaluation as columns."""
    pieces = []
    for number, test_set, its in _evaluated(rows):
        there = np.union1d(its.true, its.predicted)
        counts = (its.num_samples, its.num_predicted, its.num_correct)
        shares = (its.recall, its.precision, its.f1)
        figures = [values[there] for values in (*counts, *shares)]
        pieces.append((number, test_set, there, _named(there, names), *figures))
    return _stacked(CLASSES, pieces)


def confusion(rows: Sequence[RoundRow]) -> Columns:
    """Return the samples of each true and predicted class at each evaluation as columns."""
    return _stacked(
        CONFUSION,
        [(number, name, its.true, its.predicted, its.counts) for number, name, its in _evaluated(rows)],
    )


def _evaluated(rows: Sequence[RoundRow]) -> Iterator[tuple[int, str, Confusion]]:
    """Yield round, test set and confusion matrix."""
    for row in rows:
        if row.accuracy is not None:
            for test_set, its in row.accuracy.confusions.items():
                yield row.round, test_set, its


def _stacked(table: Table, pieces: Sequence[Sequence[Any]]) -> Columns:
    """Return pieces, each with the values of all columns in order, as one table.

    A single value stands in every row of its piece.
    """
    whole = [np.broadcast_arrays(*piece) for piece in pieces]
    columns = {}
    for number, (name, column) in enumerate(table.columns.items()):
        kind = object if column.type == "string" else column.type
        values = np.concatenate([np.empty(0, kind), *(piece[number] for piece in whole)])
        columns[name] = values.astype(kind, copy=False)
    return columns


def _named(numbers: Array, names: Sequence[str] | None) -> Array:
    """Return the names of classes by their numbers."""
    return np.array([names[number] if names else str(number) for number in numbers.tolist()], object)
