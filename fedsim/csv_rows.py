"""Rows of plain-text CSV files: reading them with line numbers, and writing texts safely."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsim.errors import DataError
from fedsim.numerals import number
from fedsim.quoting import MAX_SHOWN, quoted, shortened
from fedsim.units import ANY, Range

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a file, cut at its commas."""

    source: str
    line: int
    cells: tuple[str, ...]

    def fault(self, problem: str, column: str = "") -> DataError:
        """Return the error that names this line, and the column if there is one."""
        where = f"{self.source}, line {self.line}" + (f", column {quoted(column)}" if column else "")
        return DataError(f"{where}: {problem}")

    def number(
        self, place: int, column: str, *, positive: bool = False, limits: Range = ANY, factor: float = 1
    ) -> float:
        """Return the cell at a place, times ``factor``, as a number of zero or more."""
        text = self.cells[place]
        value = number(text)
        if value is None:
            wrong = f"{quoted(text)} is not a number" if text else "the cell is empty"
            raise self.fault(f"{wrong}: write a plain number, the unit is in the column's name", column)
        if not math.isfinite(value):
            raise self.fault(f"{quoted(text)} is not finite: write a plain number", column)
        if value < 0 or (positive and value == 0):
            rule = "above zero" if positive else "zero or more"
            raise self.fault(
                f"{quoted(text)} is {'zero' if value == 0 else 'negative'}: write a number {rule}", column
            )
        result = value * factor
        if not limits.holds(result, positive=positive):
            problem = "too large" if result > limits.most else "too small"
            rule = f"from {limits.least / factor:.6g} to {limits.most / factor:.6g}"
            raise self.fault(
                f"{quoted(text)} is {problem}: write {'' if positive else 'zero or '}a number {rule}", column
            )
        return result


def read_text(path: str) -> str:
    """Return the text of a file."""
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: it is not text in UTF-8 (byte {error.start}): save it as plain-text CSV"
        ) from None
    except (OSError, ValueError) as error:  # a name that no file can have is a ValueError
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{shortened(path, MAX_SHOWN)}: it cannot be read: {reason}") from None


def rows_of(text: str, source: str) -> list[Row]:
    """Return the rows of a text; empty lines and those that begin with ``#`` are left out."""
    rows = []
    for line, written in enumerate(text.splitlines(), 1):
        if not written.strip() or written.lstrip().startswith("#"):
            continue
        cells: Sequence[str]
        try:
            cells = next(csv.reader([written], strict=True)) if '"' in written else written.split(",")
        except csv.Error as error:
            raise DataError(f"{source}, line {line}: {error}") from None
        rows.append(Row(source, line, tuple(cell.strip() for cell in cells)))
    if not rows:
        raise DataError(f"{source}: it is empty: write at least one line")
    return rows


def same_length(rows: Sequence[Row]) -> None:
    """Refuse rows that have more or fewer cells than the first."""
    for row in rows:
        if len(row.cells) != len(rows[0].cells):
            problem = f"{len(row.cells)} cells, but the header has {len(rows[0].cells)} columns"
            raise row.fault(f"{problem}: give one cell for each")


def below_header(rows: Sequence[Row], problem: str) -> Sequence[Row]:
    """Return the rows below the first, which have as many cells; ``problem`` says that there are none."""
    same_length(rows)
    if len(rows) == 1:
        raise rows[0].fault(problem)
    return rows[1:]


def safe_cell(value: Any) -> Any:
    """Return a value as it is written into a CSV file.

    A text that a spreadsheet would take for a formula gets an apostrophe before it. Numbers are not changed.
    """
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA_STARTS) else value
