"""Descriptions of columns. All writers of tables use them, so every column is described.

A name with a part in angle brackets describes a family: ``dropped_<cause>`` is each column whose name begins
so. The brackets in its description stand for that part of the name, and as its unit for the unit of the
column of that name.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from fedsim.csv_rows import safe_cell
from fedsim.errors import InvariantError

NUMBER = "1"
"""The unit of counts, shares and other plain numbers."""

WORDS = ""
"""The unit of words and booleans, which have none."""

PATH = "<path>"
"""Placeholder for the columns of a study that are named by paths of its scenario."""


@dataclass(frozen=True, slots=True)
class Column:
    """Type, unit and description of a column."""

    type: Literal["int32", "int64", "float64", "bool", "string", ""]
    unit: str
    description: str


count = partial(Column, "int64", NUMBER)
number = partial(Column, "float64", NUMBER)
seconds = partial(Column, "float64", "s")
size = partial(Column, "int64", "B")
joules = partial(Column, "float64", "J")
word = partial(Column, "string", WORDS)
flag = partial(Column, "bool", WORDS)


@dataclass(frozen=True, slots=True)
class Table:
    """A table and all columns that it can have."""

    name: str
    file: str
    rows: str
    columns: Mapping[str, Column]

    def column(self, name: str) -> Column:
        """Return the description of a column, or of a member of a family."""
        if (known := self.columns.get(name)) is not None:
            return known
        for family, column in self.columns.items():
            stands = re.search("<.+>", family)
            if stands is None or family == PATH:
                continue
            if member := re.fullmatch(family.replace(stands[0], "(.+)"), name, re.DOTALL):
                unit = self.column(member[1]).unit if column.unit == stands[0] else column.unit
                words = column.description.replace(stands[0], member[1])
                return replace(column, unit=unit, description=words)
        raise InvariantError(
            f"column {name!r} of the table {self.name!r} is described nowhere: say what it means beside the "
            "others of its table"
        )

    def check(self, names: Iterable[str]) -> None:
        """Check that columns are described."""
        for name in names:
            self.column(name)

    def with_paths(self, paths: Sequence[str]) -> Table:
        """Return the table with columns for these paths in the place of :data:`PATH`."""
        columns: dict[str, Column] = {}
        for name, column in self.columns.items():
            if name == PATH:
                columns |= {
                    path: replace(column, description=column.description.replace(PATH, path))
                    for path in paths
                }
            else:
                columns[name] = column
        return replace(self, columns=columns)


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
