"""Writing figures to files: as SVG, PNG and PDF for papers, and their data as CSV.

matplotlib draws them (:mod:`fedsim.figures.chart_drawing`). The extra ``figures`` installs it, and it is
imported only here. The same figures give the same files, byte for byte, with the same version of matplotlib.
"""

from __future__ import annotations

import csv
import io
import math
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fedsim.csv_rows import safe_cell
from fedsim.durable import telling
from fedsim.errors import UserError
from fedsim.figures.chart_types import (
    Axis,
    BarChart,
    Chart,
    Figure,
    GanttChart,
    HeatChart,
    LineChart,
    PointChart,
    Section,
)
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
    files = [folder / f"{figure.name}.{kind}" for figure in figures for kind in (*FORMATS, "csv")]
    check_files(files, force=force)
    with telling(folder, MEND):
        folder.mkdir(parents=True, exist_ok=True)
    to_write = iter(files)
    for figure in figures:
        for content in (*_pictures(figure), chart_csv(figure.chart)):
            write_file(next(to_write), content)
    return files


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


def chart_csv(chart: Chart) -> bytes:
    """Return the data of a chart; numbers are exact, and what is not there is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for row in _rows(chart):
        there = (None if isinstance(value, float) and math.isnan(value) else value for value in row)
        writer.writerow([safe_cell(value) for value in there])
    return text.getvalue().encode()


def _rows(chart: Chart) -> Iterator[Sequence[Any]]:
    """Yield the heading and the rows."""
    match chart:
        case LineChart():
            yield "line", _name(chart.x), *(f"{_name(chart.y)}{end}" for end in ("", ", low", ", high"))
            for line in chart.lines:
                ends = (
                    [None] * len(line.x) if end is None else end.tolist() for end in (line.low, line.high)
                )
                for values in zip(line.x.tolist(), line.y.tolist(), *ends, strict=True):
                    yield line.label, *values
            for target in chart.targets:
                yield target.label, None, target.value, None, None
        case PointChart():
            yield "group", "name", _name(chart.x), _name(chart.y)
            for group in chart.groups:
                for name, *place in zip(group.names, group.x.tolist(), group.y.tolist(), strict=True):
                    yield group.label, name, *place
        case BarChart():
            yield "bar", "part", _name(chart.axis)
            for number, bar in enumerate(chart.bars):
                for part in chart.parts:
                    yield bar, part.label, float(part.values[number])
        case HeatChart():
            yield chart.row_axis, chart.column_axis, _name(chart.axis)
            for name, values in zip(chart.rows, chart.values.tolist(), strict=True):
                for column, value in zip(chart.columns, values, strict=True):
                    yield name, column, value
        case GanttChart():
            yield "row", "round", "phase", "began at [s]", "ended at [s]"
            columns = (chart.row, chart.round, chart.phase, chart.began_at_s, chart.ended_at_s)
            for row, number, phase, began_at_s, ended_at_s in zip(
                *(column.tolist() for column in columns), strict=True
            ):
                yield chart.rows[row], number, chart.phases[phase], began_at_s, ended_at_s


def _name(axis: Axis) -> str:
    """Return the name of an axis with its unit; shares and counts have none."""
    return axis.label if axis.unit in ("1", "share") else f"{axis.label} [{axis.unit}]"
