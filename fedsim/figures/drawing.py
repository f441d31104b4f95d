"""Writing figures to files: as SVG, PNG and PDF for papers, and their data as CSV.

matplotlib draws them (:mod:`fedsim.figures.chart_drawing`). The extra ``figures`` installs it, and it is
imported only here. The same figures give the same files, byte for byte, with the same version of matplotlib.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from pathlib import Path

from fedsim.durable import telling
from fedsim.errors import UserError
from fedsim.figures.base import Figure, GanttChart, Section
from fedsim.figures.chart_csv import chart_csv
from fedsim.plugins import install_command
from fedsim.report.atomic_folder import MEND, check_files, write_file

FORMATS = ("svg", "png", "pdf")
"""Of the pictures."""

DPI = 200
"""Of a PNG."""


def write_figures(sections: Sequence[Section], folder: Path, *, force: bool = False) -> list[Path]:
    """Write each figure into a folder, as ``<name>.svg``, ``.png``, ``.pdf`` and ``.csv``."""
    _check_installed()
    figures = [figure for section in sections for figure in section.figures]
    files = {
        figure.name: [folder / f"{figure.name}.{kind}" for kind in (*FORMATS, "csv")] for figure in figures
    }
    check_files([file for some in files.values() for file in some], force=force)
    with telling(folder, MEND):
        folder.mkdir(parents=True, exist_ok=True)
    for figure in figures:
        contents = [*_pictures(figure), chart_csv(figure.chart)]
        for file, content in zip(files[figure.name], contents, strict=True):
            write_file(file, content)
    return [file for some in files.values() for file in some]


def _pictures(figure: Figure) -> list[bytes]:
    """Return a figure in each of :data:`FORMATS`."""
    import matplotlib

    from fedsim.figures.chart_drawing import DRAWN_ROUNDS, STYLE, drawn

    notes = list(figure.notes)
    if isinstance(figure.chart, GanttChart) and len(figure.chart.round_numbers) > DRAWN_ROUNDS:
        notes.append(f"Drawn are the first {DRAWN_ROUNDS} of them; the CSV file has all.")
    about = "\n".join([figure.text, *notes])
    metadata: dict[str, dict[str, str | None]] = {
        "svg": {"Title": figure.title, "Description": about, "Date": None},
        "png": {"Title": figure.title, "Description": about},
        "pdf": {"Title": figure.title, "Subject": about, "CreationDate": None},
    }
    pictures = []
    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)  # it is drawn as a box
        page = drawn(figure.chart)
        page.draw_without_rendering()  # which lays it out
        page.set_layout_engine("none")
        for kind in FORMATS:
            content = io.BytesIO()
            page.savefig(content, format=kind, dpi=DPI, metadata=metadata[kind])
            pictures.append(content.getvalue())
    return pictures


def _check_installed() -> None:
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise UserError(
            f"figures are drawn by matplotlib, which cannot be imported ({error}): "
            f"{install_command('figures')}"
        ) from error
