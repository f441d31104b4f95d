"""``fedsim report``."""

from __future__ import annotations

from pathlib import Path

from fedsim.cli.console import say
from fedsim.page.write_report import write_report
from fedsim.report import number_format


def report(folder: Path, out: Path | None, figures: Path | None, force: bool) -> None:
    """Write the report of a folder of results, and say where it is."""
    file = write_report(folder, out, figures=figures, force=force)
    say(f"{file} ({number_format.size(file.stat().st_size)})")
    if figures is not None:
        say(f"figures are in {figures}")
