"""A table as text cells, for whoever prints it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")


Pairs = list[tuple[str, str]]
"""Names, and what they stand for."""


@dataclass(frozen=True, slots=True)
class TextTable:
    """Cells under headings."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()
    text_columns: frozenset[int] = field(default=frozenset({0}))
    title: str = ""

    @classmethod
    def of(cls, items: Iterable[T], columns: Mapping[str, Callable[[T], str]], **more: Any) -> TextTable:
        """Return a table with a row for each item, given what each column shows of it, by its heading."""
        return cls(list(columns), [tuple(show(item) for show in columns.values()) for item in items], **more)

    def lines(self) -> list[str]:
        """Return the table as plain lines, headings first, columns two blanks apart."""
        heads = [heading.split("\n") for heading in self.headings]
        height = max(len(head) for head in heads)
        top = [[*[""] * (height - len(head)), *head] for head in heads]
        every = [*([head[line] for head in top] for line in range(height)), *self.rows]
        widths = [max(len(row[column]) for row in every) for column in range(len(heads))]
        lines = ["  ".join(self._aligned(cell, i, widths[i]) for i, cell in enumerate(row)) for row in every]
        lines.insert(height, "  ".join("-" * width for width in widths))
        return [line.rstrip() for line in lines]

    def parts(self, width: int) -> list[TextTable]:
        """Return the table in parts that are narrower than a width, as far as a column allows.

        Each has the first column, and none the title or the notes.
        """
        parts, columns = [], [0]
        for column in range(1, len(self.headings)):
            if len(columns) > 1 and max(map(len, self._only([*columns, column]).lines())) >= width:
                parts.append(columns)
                columns = [0]
            columns.append(column)
        return [self._only(some) for some in (*parts, columns)]

    def _only(self, columns: Sequence[int]) -> TextTable:
        headings = [self.headings[column] for column in columns]
        rows = [[row[column] for column in columns] for row in self.rows]
        words = frozenset(place for place, column in enumerate(columns) if column in self.text_columns)
        return TextTable(headings, rows, text_columns=words)

    def _aligned(self, cell: str, column: int, width: int) -> str:
        return cell.ljust(width) if column in self.text_columns else cell.rjust(width)


def aligned(lines: Pairs) -> list[str]:
    """Return names with what they stand for, in two columns."""
    width = max(len(name) for name, _ in lines)
    return [f"  {name.ljust(width)}  {value}" for name, value in lines]
