"""Printing tables, headings and lines: styled on a terminal, plain elsewhere."""

from __future__ import annotations

import os
import sys
import textwrap

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedsim.report.text_table import Pairs, TextTable, aligned


def say(line: str = "") -> None:
    """Print a line of the result."""
    click.echo(line)


def note(line: str) -> None:
    """Print a line on standard error."""
    click.echo(line, err=True)


def strong(text: str) -> str:
    """Return a text in bold, where that can be shown."""
    return click.style(text, bold=True) if _is_dressed() else text


def heading(text: str) -> None:
    """Print a heading, after an empty line."""
    click.echo()
    click.echo(strong(text))


def sentence(text: str) -> None:
    """Print the sentence that precedes tables."""
    for line in _wrapped(text):
        click.echo(strong(line))


def pairs(lines: Pairs) -> None:
    """Print names with values, aligned."""
    for line in aligned(lines):
        click.echo(line)


def table(grid: TextTable) -> None:
    """Print a table."""
    if grid.title:
        heading(grid.title)
    # In a narrow terminal words wrap, and columns of numbers go below each other.
    wraps = len(grid.text_columns) == len(grid.headings)
    parts = grid.parts(terminal().width) if sys.stdout.isatty() and not wraps else [grid]
    for number, part in enumerate(parts):
        if number:
            click.echo()
        plain = part.lines()
        # Numbers that were cut off would be worse than long lines.
        if _is_dressed() and (wraps or max(map(len, plain)) < terminal().width):
            _rich_table(part)
        else:
            for line in plain:
                click.echo(line)
    for remark in grid.notes:
        for line in _wrapped(remark, "  "):
            click.echo(click.style(line, dim=True) if _is_dressed() else line)


def terminal(*, error: bool = False) -> Console:
    """Return rich's console on standard output, or on standard error; it respects NO_COLOR."""
    return Console(stderr=error, highlight=False)


def _wrapped(text: str, indent: str = "") -> list[str]:
    """Wrap a text at words for a terminal."""
    if not sys.stdout.isatty():
        return [indent + text]
    return textwrap.wrap(text, terminal().width, initial_indent=indent, subsequent_indent=indent)


def _is_dressed() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _rich_table(grid: TextTable) -> None:
    shown = Table(
        box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold"
    )
    for index, name in enumerate(grid.headings):
        words = index in grid.text_columns
        shown.add_column(
            Text(name),
            justify="left" if words else "right",
            no_wrap=not words,
            vertical="top" if words else "bottom",
        )
    for row in grid.rows:
        shown.add_row(*(Text(cell, style="bold green" if cell.endswith("*") else "") for cell in row))
    terminal().print(shown)
