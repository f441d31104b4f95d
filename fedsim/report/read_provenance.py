"""Reading ``run.json``, without importing what writes it (:mod:`fedsim.report.provenance`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedsim.report.read_whole import read_object

NEEDED = ("fedsim", "bus")
"""What it says of every run, and readers ask for."""


def read_provenance(folder: Path) -> dict[str, Any]:
    """Return where, when and with what a run was done, from its folder."""
    return read_object(folder / "run.json", NEEDED)
