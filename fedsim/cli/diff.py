"""``fedsim diff``."""

from __future__ import annotations

from pathlib import Path

from click.exceptions import Exit

from fedsim.cli.console import note, say, table, terminal
from fedsim.report.difference_text import remarks, tables, verdict
from fedsim.report.run_difference import run_difference

DIFFERENT = 1
"""The exit status, as diff has it."""


def diff(first: Path, second: Path) -> None:
    """Print where two runs part, and fail if they do."""
    difference = run_difference(first, second)
    for grid in (grids := tables(difference)):
        table(grid)
    if grids:
        say()
    for line in verdict(difference, terminal().width):
        say(line)
    for remark in remarks(difference):
        note(f"note: {remark}")
    if not difference.is_none:
        raise Exit(DIFFERENT)
