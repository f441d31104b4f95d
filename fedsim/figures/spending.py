"""Where time and bytes went, as bars: of device groups, of variants, or of a whole run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fedsim.figures.chart_descriptions import bars_text
from fedsim.figures.chart_types import Axis, BarChart, Figure, Part
from fedsim.params import Array
from fedsim.report.cost_breakdown import Columns, Figures
from fedsim.report.energy import MODEL
from fedsim.report.run_columns import ENERGY, SENT
from fedsim.runtime.records.dispatch_phases import PHASES, WORK

_OVERHEAD = ("overhead_up", "overhead_down")

OPTIONAL = tuple(ENERGY)
"""Columns that are there where energy is computed."""

NEEDED = (*(f"{phase}_s" for phase in PHASES), "wasted_s", *SENT, *_OVERHEAD, "wasted_bytes", *OPTIONAL)
"""Columns of ``rounds`` or ``clients`` that these figures are made of."""


class _Kind(NamedTuple):
    """A figure: of each part, the amounts that are added, and those that are taken off.

    There is none where there is nothing of the part that is its ``point``.
    """

    name: str
    title: str
    axis: Axis
    parts: Mapping[str, tuple[Sequence[str], Sequence[str]]]
    note: str
    point: str | None = None


_TIME = Axis("client time", "s")

_KINDS = (
    _Kind(
        "time-by-phase",
        "Client time by phase",
        _TIME,
        {phase: ([f"{phase}_s"], []) for phase in PHASES},
        "Time is summed over dispatches, which overlap: it can exceed the time from start to end.",
    ),
    _Kind(
        "wasted-work",
        "Useful and wasted work",
        _TIME,
        {"useful": ([f"{phase}_s" for phase in WORK], ["wasted_s"]), "wasted": (["wasted_s"], [])},
        "Work is downloading, computing and uploading. It is wasted where the reply was not merged.",
        "wasted",
    ),
    _Kind(
        "bytes",
        "Bytes sent",
        Axis("bytes sent, up and down", "B"),
        {
            "useful": (["payload_bytes"], ["wasted_bytes"]),
            "wasted": (["wasted_bytes"], []),
            "overhead": (["overhead_bytes"], []),
        },
        "A frame is wasted where it was lost, or its reply was not merged. Overhead is what protocols add.",
    ),
    _Kind(
        "energy",
        "Energy of clients",
        Axis("energy", "J"),
        {part.removesuffix("_j"): ([part], []) for part in ENERGY},
        f"{MODEL[0].upper()}{MODEL[1:]}.",
    ),
)


def spent(rows: Columns) -> Figures:
    """Return sums over rows of ``rounds`` or ``clients``, with names as a summary's figures have.

    (:func:`fedsim.report.cost_breakdown.cost_figures`.) What follows from a column that is not there is
    left out.
    """
    sums = {name: float(np.sum(rows[name])) for name in NEEDED if name in rows}
    for name, parts in (("payload_bytes", SENT), ("overhead_bytes", _OVERHEAD)):
        if sums.keys() >= set(parts):
            sums[name] = sum(sums[part] for part in parts)
    return sums


def spending_figures(bars: Mapping[str, Figures], of: str = "") -> list[Figure]:
    """Return client time by phase, useful and wasted work, and bytes, as far as they are known."""
    return [figure for kind in _KINDS if (figure := _figure(bars, kind, of)) is not None]


def _figure(bars: Mapping[str, Figures], kind: _Kind, of: str) -> Figure | None:
    known = [set(of_bar) for of_bar in bars.values()]
    needed = {name for pair in kind.parts.values() for names in pair for name in names}
    if not bars or not all(needed <= names for names in known):
        return None

    def amounts(names: Sequence[str]) -> Array:
        return np.array([sum(bar[name] or 0.0 for name in names) for bar in bars.values()], float)

    # Of seconds, which are whole nanoseconds, a difference can be a little off, also below 0.
    parts = [
        Part(label, np.maximum(0.0, (amounts(plus) - amounts(minus)).round(9)))
        for label, (plus, minus) in kind.parts.items()
    ]
    parts = [part for part in parts if part.values.any()]
    if not parts or kind.point not in (None, *(part.label for part in parts)):
        return None
    chart = BarChart(list(bars), parts, kind.axis)
    title = f"{kind.title}, {of}" if of else kind.title
    return Figure(kind.name, title, bars_text(chart), chart, [kind.note])
