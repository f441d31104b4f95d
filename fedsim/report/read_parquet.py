"""Reading the Parquet files of results, which may be damaged, or gone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
        with _as_errors():
            found = parquet.read_table(file, columns=None if names is None else list(names))
        return found if names is None else found.select(list(names))

    return read_whole(file, table)


def read_columns(file: Path, names: Sequence[str]) -> Columns:
    """Return columns of a Parquet file of results.

    Raises:
        OutputError: It is not there, or damaged, or lacks one of them.
    """
    table = read_table(file, names)
    return {name: table[name].to_numpy() for name in names}


def read_there(file: Path, names: Sequence[str]) -> Columns:
    """Return those of some columns that a Parquet file of results has; none where there is no file.

    Raises:
        OutputError: It is damaged.
    """

    def there(file: Path) -> set[str]:
        with _as_errors():
            return set(parquet.read_schema(file).names)

    if not file.exists():
        return {}
    found = read_whole(file, there)
    return read_columns(file, [name for name in names if name in found])


@contextmanager
def _as_errors() -> Iterator[None]:
    """Raise what Arrow raises as an error of Python's own, which some of its exceptions are not."""
    try:
        yield
    except pa.ArrowException as error:
        raise ValueError(error) from error
