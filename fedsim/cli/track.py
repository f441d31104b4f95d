"""``fedsim track``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedsim.cli.console import note, say
from fedsim.report.tracking import run_folders
from fedsim.report.tracking import track as track_run
from fedsim.scenario.tracker import load_tracker


def known(names: tuple[str, ...]) -> tuple[str, ...]:
    """Check that there are trackers of these names."""
    for name in names:
        load_tracker(name)
    return names


def track(folder: Path, to: str, out: Path | None, params: Sequence[str]) -> None:
    """Tell a tracker of runs that have ended, and say how to look at them."""
    tracker = load_tracker(to, params, folder=out)
    for run_folder in run_folders(folder):
        run = track_run(run_folder, tracker)
        note(f"{to} has {run.name}")
    say(tracker.how_to_look(run))
