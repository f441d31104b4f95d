"""Reading the Parquet files of results, which may be damaged, or gone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from fedsim.report.cost_breakdown import Columns
from fedsim.report.read_whole import read_whole


def read_table(file: Path, names: Sequence[str] | None = None) -> pa.Table:
    """Return a Parquet file of results, or the columns of these names alone.

    Raises:
        OutputError: It is not there, or damaged, or lacks one of them.
    """

    def table(file: Path) -> pa.Table:
        try:
            found = parquet.read_table(file, columns=None if names is None else list(names))
        except pa.ArrowException as error:  # some are no errors of Python's own
            raise ValueError(error) from error
        return found if names is None else found.select(list(names))

    return read_whole(file, table)


def read_columns(file: Path, names: Sequence[str]) -> Columns:
    """Return columns of a Parquet file of results.

    Raises:
        OutputError: It is not there, or damaged, or lacks one of them.
    """
    table = read_table(file, names)
    return {name: table[name].to_numpy() for name in names}
