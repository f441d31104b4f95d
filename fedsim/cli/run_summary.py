"""What is shown of a run that has ended."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fedsim.cli.console import heading, note, pairs
from fedsim.errors import RunError
from fedsim.report import cost_breakdown, run_text
from fedsim.report.cost_breakdown import Summary


def show(summary: Summary, folder: Path, *, passed: str = run_text.SIMULATED) -> None:
    """Print a run in a few lines."""
    heading(run_text.title(summary))
    pairs(run_text.pairs(summary, passed))
    heading(cost_breakdown.TITLE)
    pairs(cost_breakdown.lines(summary))
    note(f"\nresults are in {folder}")


def check_succeeded(faults: Mapping[str, str | None]) -> None:
    """Fail where runs, which have been written and shown, have ended without success."""
    said = [f"{name}: {fault}" if name else fault for name, fault in faults.items() if fault is not None]
    if said:
        raise RunError("\n  ".join(said))
