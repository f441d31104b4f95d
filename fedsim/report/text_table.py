"""Tables of text cells, as plain lines, Markdown, LaTeX or HTML."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, TypeVar

T = TypeVar("T")


Pairs = list[tuple[str, str]]
"""Names with values."""


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
        """Return a table with a row for each item; a column is a heading and a function of the item."""
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
        """Split the table into parts that are narrower than a width, if single columns are.

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
    """Return names and values as lines in two columns."""
    width = max(len(name) for name, _ in lines)
    return [f"  {name.ljust(width)}  {value}" for name, value in lines]


_IN_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}


def to_markdown(table: TextTable) -> str:
    """Return a table in Markdown: its title, its cells, and its notes as a list."""
    rules = ["---" if number in table.text_columns else "---:" for number in range(len(table.headings))]
    rows = [[heading.replace("\n", " ") for heading in table.headings], rules, *table.rows]
    lines = [f"### {table.title}", ""] if table.title else []
    lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    lines += ["", *(f"- {_starless(note)}" for note in table.notes)] if table.notes else []
    return "\n".join(lines) + "\n"


def to_latex(table: TextTable) -> str:
    """Return a table in LaTeX, with the rules of the package booktabs; its title is the caption.

    Notes are comments, for whoever writes the text around it.
    """
    spec = "".join("l" if number in table.text_columns else "r" for number in range(len(table.headings)))
    rows = [" & ".join(_latex(cell.replace("\n", " ")) for cell in row) + r" \\" for row in table.rows]
    heads = " & ".join(_latex(heading.replace("\n", " ")) for heading in table.headings) + r" \\"
    lines = [f"% {note}" for note in table.notes]
    lines += [r"\begin{table}", r"\centering"]
    lines += [rf"\caption{{{_latex(table.title)}}}"] if table.title else []
    lines += [rf"\begin{{tabular}}{{{spec}}}", r"\toprule", heads, r"\midrule", *rows, r"\bottomrule"]
    return "\n".join([*lines, r"\end{tabular}", r"\end{table}"]) + "\n"


def to_html(table: TextTable) -> str:
    """Return a table in HTML, for notebooks: its title is the caption, and its notes are below it."""

    def line(tag: str, cells: Sequence[str]) -> str:
        sides = ["left" if number in table.text_columns else "right" for number in range(len(cells))]
        return "".join(
            f'<{tag} style="text-align: {side}">{escape(cell).replace(chr(10), "<br>")}</{tag}>'
            for side, cell in zip(sides, cells, strict=True)
        )

    caption = f'<caption style="text-align: left">{escape(table.title)}</caption>' if table.title else ""
    head = f"<thead><tr>{line('th', table.headings)}</tr></thead>" if any(table.headings) else ""
    body = "".join(f"<tr>{line('td', row)}</tr>" for row in table.rows)
    notes = f"<p><small>{'<br>'.join(map(escape, table.notes))}</small></p>" if table.notes else ""
    return f"<table>{caption}{head}<tbody>{body}</tbody></table>{notes}"


def _latex(text: str) -> str:
    return "".join(_IN_LATEX.get(character, character) for character in text)


def _starless(note: str) -> str:
    """Keep a star at the start of a note from becoming a list of its own."""
    return re.sub(r"^\*", r"\\*", note)
