"""Reading the files of results, which may be damaged, or gone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
from pyarrow import parquet

from fedsim.errors import OutputError
from fedsim.quoting import MOST_SAID, shortened
from fedsim.report.cost_breakdown import Columns

T = TypeVar("T")


def read_whole(file: Path, how: Callable[[Path], T]) -> T:
    """Read a file of results.

    Raises:
        OutputError: It is not there, or damaged.
    """
    try:
        return how(file)
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        said = shortened(error, MOST_SAID)
        raise OutputError(f"{file} cannot be read, so these results are not whole: {said}") from error


def read_columns(file: Path, names: Sequence[str]) -> Columns:
    """Return columns of a Parquet file of results.

    Raises:
        OutputError: It is not there, or damaged, or lacks one of them.
    """

    def columns(file: Path) -> Columns:
        table = parquet.read_table(file, columns=list(names))
        return {name: table[name].to_numpy() for name in names}

    return read_whole(file, columns)
