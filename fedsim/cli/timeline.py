"""``fedsim timeline``."""

from __future__ import annotations

from pathlib import Path

from fedsim.cli.console import note, say
from fedsim.report.number_format import several, size
from fedsim.report.shown_clients import MAX_CLIENTS
from fedsim.timeline.run_timeline import save_timeline


def timeline(folder: Path, out: Path | None, clients: int | None) -> None:
    """Write the timeline of a run, and say how to look at it."""
    file = out or folder.resolve().parent / f"{folder.resolve().name}.pftrace"
    shown = save_timeline(folder, file, most_clients=clients or MAX_CLIENTS)
    for remark in shown.remarks:
        note(f"note: {remark}")
    written = f"{several(shown.num_clients, 'client')}, {size(file.stat().st_size)}"
    note(f"{written}: open it at https://ui.perfetto.dev")
    say(str(file))
