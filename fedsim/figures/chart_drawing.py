"""Charts drawn by matplotlib, for paper. Imported only where somebody wants that, since it is an extra."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure as Page
from matplotlib.patches import Patch

from fedsim.figures.chart_types import (
    Axis,
    BarChart,
    Chart,
    GanttChart,
    HeatChart,
    LineChart,
    PointChart,
)
from fedsim.figures.gantt import first_rounds
from fedsim.figures.palette import DASHES, HEAT_LIGHT, LIGHT, MARKERS, colour_number
from fedsim.figures.thinning import thinned
from fedsim.figures.ticks import reach, tick_label, ticks
from fedsim.quoting import shortened

STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # which matplotlib brings along
    "font.size": 8,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.linewidth": 1.3,
    "legend.frameon": False,
    "legend.fontsize": 7.5,
    "hatch.linewidth": 0.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "text.parse_math": False,  # a dollar in a name is a dollar
    "svg.hashsalt": "fedsim",  # so that the same figure is the same file
    "pdf.fonttype": 42,
}
"""Settings of matplotlib."""

WIDTH = 4.6
"""Of a figure, inches: that of a column of text, or of two after shrinking."""

_HEIGHT = 2.9
_ROW = 0.17
"""Height of a row of a bar chart, a grid or a Gantt chart, inches."""
_NARROW_ROW = 0.125
"""The same where there are many."""

MAX_LABEL = 34
"""Characters of a name beside an axis or in a legend."""

MAX_IN_LEGEND = 12

DRAWN_ROUNDS = 12
"""Of a Gantt chart: on paper nobody can choose, and more would be too narrow."""

_HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\", "----", "++++", "oo")
_SHAPES = dict(zip(MARKERS, "os^DxP", strict=True))
_MARK = "#555555"
_GRID: dict[str, Any] = {"color": "#dddddd", "linewidth": 0.5, "zorder": 0}


def drawn(chart: Chart) -> Page:
    """Return a page with a chart; :data:`STYLE` has to be in force, also while it is saved."""
    match chart:
        case LineChart():
            page, axes = _page(_HEIGHT)
            _lines(axes, chart)
        case PointChart():
            page, axes = _page(_HEIGHT)
            _points(axes, chart)
        case BarChart():
            page, axes = _page(0.9 + 1.5 * _ROW * len(chart.bars))
            _bars(axes, chart)
        case HeatChart():
            page, axes = _page(_height(chart.rows))
            _heat(page, axes, chart)
        case GanttChart():
            chart = first_rounds(chart, DRAWN_ROUNDS)
            page, axes = _page(_height(chart.rows))
            _gantt(axes, chart)
    return page


def plain(text: str, most: int = MAX_LABEL) -> str:
    """Return a name for a label: shortened, on one line, without characters that cannot be drawn."""
    shown = "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text
    )
    # matplotlib leaves what begins with an underscore out of legends.
    return shortened(f" {shown}" if shown.startswith("_") else shown, most)


def _height(rows: Sequence[str]) -> float:
    return 1.0 + (_ROW if len(rows) <= 20 else _NARROW_ROW) * max(len(rows), 6)


def _page(height: float) -> tuple[Page, Axes]:
    page = Page(figsize=(WIDTH, height), layout="constrained")
    return page, page.add_subplot()


def _lines(axes: Axes, chart: LineChart) -> None:
    for number, line in enumerate(map(thinned, chart.lines)):
        if not len(line.x):
            continue
        colour = LIGHT[colour_number(number, line.label)]
        [path] = axes.plot(
            line.x,
            line.y,
            color=colour,
            drawstyle="steps-post" if chart.is_stepped else "default",
            marker="o" if len(line.x) == 1 else None,
            markersize=3,
            label=plain(line.label),
        )
        path.set_dashes(DASHES[number % len(DASHES)] or (None, None))
        if line.low is not None and line.high is not None:
            step: Literal["post"] | None = "post" if chart.is_stepped else None
            axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.18, linewidth=0, step=step)
    ends = [end for line in chart.lines for end in (line.y, line.low, line.high) if end is not None]
    values = np.concatenate([np.empty(0), *ends])
    values = values[np.isfinite(values) & ((values > 0) | (chart.y.scale == "linear"))]
    if len(values):
        marked = [target.value for target in chart.targets]
        axes.set_ylim(*reach(float(values.min()), float(values.max()), chart.y, marked))
    low, high = axes.get_ylim()
    for target in chart.targets:
        if low <= target.value <= high:
            axes.axhline(target.value, color=_MARK, linewidth=0.7, dashes=(4, 3), zorder=1)
        arrow = " ↑" if target.value > high else " ↓" if target.value < low else ""
        axes.annotate(
            plain(target.label, 60) + arrow,
            (0.005, min(max(target.value, low), high)),
            xycoords=("axes fraction", "data"),
            xytext=(0, -8 if target.value > high else 1.5),
            textcoords="offset points",
            fontsize=6.5,
            color=_MARK,
        )
    axes.grid(**_GRID)
    _scaled(axes, "x", chart.x)
    _scaled(axes, "y", chart.y)
    if sum(len(line.x) > 0 for line in chart.lines) > 1:
        _legend(axes)


def _points(axes: Axes, chart: PointChart) -> None:
    for number, (group, marker) in enumerate(zip(chart.groups, cycle(MARKERS), strict=False)):
        colour = LIGHT[colour_number(number, group.label)]
        axes.scatter(
            group.x,
            group.y,
            s=15,
            marker=_SHAPES[marker],
            color=colour,
            alpha=0.8,
            linewidths=0.8 if marker == "cross" else 0,
            label=plain(group.label),
        )
    axes.grid(**_GRID)
    axes.set_axisbelow(True)
    _scaled(axes, "x", chart.x)
    _scaled(axes, "y", chart.y)
    if len(chart.groups) > 1:
        _legend(axes)


def _bars(axes: Axes, chart: BarChart) -> None:
    start = np.zeros(len(chart.bars))
    for number, part in enumerate(chart.parts):
        axes.barh(
            range(len(chart.bars)),
            part.values,
            left=start,
            height=0.7,
            color=LIGHT[colour_number(number, part.label)],
            hatch=_HATCHES[number % len(_HATCHES)],
            edgecolor="white",
            linewidth=0.5,
            label=plain(part.label),
            zorder=2,
        )
        start = start + part.values
    _names(axes, "y", chart.bars)
    axes.invert_yaxis()
    axes.grid(axis="x", **_GRID)
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(0, float(start.max(initial=0)) * 1.02 or 1)
    _scaled(axes, "x", chart.axis)
    _legend(axes)


def _heat(page: Page, axes: Axes, chart: HeatChart) -> None:
    colours = LinearSegmentedColormap.from_list("fedsim", HEAT_LIGHT)
    cells = axes.pcolormesh(chart.values, cmap=colours, vmin=0, edgecolors="white", linewidth=0.3)
    _names(axes, "y", chart.rows, at=0.5)
    _names(axes, "x", chart.columns, at=0.5)
    axes.invert_yaxis()
    axes.set_xlabel(plain(chart.column_axis))
    axes.set_ylabel(plain(chart.row_axis))
    axes.tick_params(length=0)
    bar = page.colorbar(cells, ax=axes, label=plain(chart.axis.label), aspect=30, pad=0.02)
    most = float(np.nanmax(chart.values, initial=0)) or 1.0
    marks = ticks(0, most, chart.axis.unit)
    bar.set_ticks(marks, labels=[tick_label(mark, chart.axis.unit) for mark in marks])
    bar.outline.set_visible(False)


def _gantt(axes: Axes, chart: GanttChart) -> None:
    handles = []
    for number, phase in enumerate(chart.phases):
        colour, hatch = LIGHT[colour_number(number, phase)], _HATCHES[number % len(_HATCHES)]
        of_phase = chart.phase == number
        if not of_phase.any():
            continue
        handles.append(Patch(facecolor=colour, hatch=hatch, edgecolor="white", label=plain(phase)))
        began, lasted = chart.began_at_s[of_phase], (chart.ended_at_s - chart.began_at_s)[of_phase]
        axes.barh(
            chart.row[of_phase], lasted, left=began, height=0.75, color=colour, hatch=hatch,
            edgecolor="white", linewidth=0, zorder=2,
        )  # fmt: skip
    for ended_at_s in chart.round_ended_at_s.tolist():
        axes.axvline(ended_at_s, color=_MARK, linewidth=0.6, zorder=3)
    _name_rounds(axes, chart)
    _names(axes, "y", chart.rows)
    axes.set_ylim(max(len(chart.rows), 1) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    _scaled(axes, "x", Axis("time", "s"))
    _legend(axes, handles)


def _name_rounds(axes: Axes, chart: GanttChart) -> None:
    """Write the numbers of rounds above them, as far as there is room."""
    low, high = axes.get_xlim()
    free_from = low
    middles = (chart.round_began_at_s + chart.round_ended_at_s) / 2
    for number, middle in zip(chart.round_numbers.tolist(), middles.tolist(), strict=True):
        if middle < free_from:
            continue
        free_from = middle + (high - low) / 30
        axes.annotate(
            str(number),
            (middle, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, 2),
            textcoords="offset points",
            fontsize=6.5,
            color=_MARK,
            ha="center",
        )


def _scaled(axes: Axes, way: str, axis: Axis) -> None:
    """Give an axis its scale, its marks and its label."""
    of = getattr(axes, f"{way}axis")
    axes.set(**{f"{way}scale": axis.scale})
    low, high = of.get_view_interval().tolist()
    marks = ticks(low, high, axis.unit, axis.scale)
    of.set_ticks(marks, labels=[tick_label(mark, axis.unit) for mark in marks])
    of.set_ticks([], minor=True)
    of.set_label_text(plain(axis.label, 60))
    axes.set(**{f"{way}lim": (low, high)})


def _names(axes: Axes, way: str, names: Sequence[str], at: float = 0.0) -> None:
    """Name rows or columns; of very many, some."""
    of = getattr(axes, f"{way}axis")
    some = range(0, len(names), max(1, -(-len(names) // 40)))
    labels = [plain(names[number]) for number in some]
    is_long = way == "x" and sum(map(len, labels)) > 45
    of.set_ticks(
        [number + at for number in some], labels=labels, fontsize=6.5 if len(some) > 15 else None,
        rotation=90 if is_long else 0,
    )  # fmt: skip


def _legend(axes: Axes, handles: Sequence[Any] | None = None) -> None:
    """Put a legend below the chart, in as many columns as fit."""
    entries = list(handles) if handles is not None else axes.get_legend_handles_labels()[0]
    shown = entries[:MAX_IN_LEGEND]
    if more := len(entries) - len(shown):
        shown.append(Patch(facecolor="none", label=f"and {more} more"))
    longest = max((len(str(entry.get_label())) for entry in shown), default=1)
    columns = max(1, min(len(shown), 78 // (longest + 7)))
    page = axes.get_figure()
    if page is not None:
        page.legend(handles=shown, loc="outside lower center", ncols=columns, handlelength=2.6)
