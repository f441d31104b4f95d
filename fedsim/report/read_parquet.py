"""Reading the Parquet files of results, which may be damaged, or gone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from fedsim.report.cost_breakdown import Columns
from fedsim.report.read_results import read_checked


def read_table(file: Path, names: Sequence[str] | None = None) -> pa.Table:
    """Return the table of a Parquet file of results, or only the named columns."""

    def table(file: Path) -> pa.Table:
        try:
            if names is None:
                return parquet.read_table(file)
            there = parquet.read_schema(file).names
            if lacking := [name for name in names if name not in there]:
                raise LookupError(f"it has no column {', '.join(lacking)}")
            return parquet.read_table(file, columns=list(names)).select(list(names))
        except pa.ArrowException as error:
            raise ValueError(error) from error

    return read_checked(file, table)


def read_columns(file: Path, names: Sequence[str], optional: Sequence[str] = ()) -> Columns:
    """Return columns of a Parquet file of results, without those of the optional ones that it lacks."""
    if optional:
        there = read_checked(file, lambda file: parquet.read_schema(file).names)
        names = [name for name in names if name in there or name not in optional]
    table = read_table(file, names)
    return {name: table[name].to_numpy() for name in names}
