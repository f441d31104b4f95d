"""A table as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from fedsim.csv_rows import safe_cell
from fedsim.report.columns import Table


def csv_of(table: Table, rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Return rows with the same names as CSV; without rows, the names of the table's columns alone.

    A text that a spreadsheet would take for a formula has an apostrophe before it.
    """
    names = list(rows[0] if rows else table.columns)
    table.check(names)
    sink = io.StringIO()
    writer = csv.DictWriter(sink, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: safe_cell(value) for name, value in row.items()} for row in rows)
    return sink.getvalue().encode()
