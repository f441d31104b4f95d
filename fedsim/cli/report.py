"""``fedsim report``, and the report that a comparison or a study writes at its end."""

from __future__ import annotations

from pathlib import Path

from fedsim.cli.console import note, say
from fedsim.page.write_report import REPORT, is_report, write_report
from fedsim.report import number_format
from fedsim.report.atomic_folder import check_files


def report(
    folder: Path, out: Path | None, figures: Path | None, rounds: tuple[int, int] | None, force: bool
) -> None:
    """Write the report of a folder of results, and say where it is."""
    file = write_report(folder, out, figures=figures, rounds=rounds, force=force)
    say(f"{file} ({number_format.size(file.stat().st_size)})")
    if figures is not None:
        say(f"figures are in {figures}")


def check_report_place(parent: Path, *, force: bool) -> None:
    """Check that the report of a comparison or a study that is still to be done will have its place."""
    check_files([parent / REPORT], force=force or is_report(parent / REPORT))


def note_report(parent: Path) -> None:
    """Write the report of a comparison or a study, and say where it is."""
    note(f"its report, for a browser, is {write_report(parent, force=True)}")
