"""Who took part: dispatches and their outcomes over time, how stale replies were, and what became of groups.

What is over time takes columns of ``rounds``, so it also serves a run that goes on.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedsim.figures.chart_descriptions import bars_text, lines_text
from fedsim.figures.chart_types import Axis, BarChart, Figure, LineChart, Part, measured_line
from fedsim.figures.round_curves import TIME
from fedsim.report.cost_breakdown import Columns, Figures
from fedsim.runtime.records.dispatch_rows import OUTCOMES

ALWAYS = ("asked", "merged")
"""Outcomes that are shown even where there are none."""

STALENESS = {"mean over replies": "staleness_mean", "largest": "staleness_max"}

NEEDED = ("ended_at_s", *OUTCOMES, *STALENESS.values())
"""Columns of ``rounds`` that the figures over time are made of."""

PARTS = ("merged", "dropped", "rejected")
"""What dispatches come to; the reply of a dropped one may still come, late."""


def participation_figures(rounds: Columns) -> list[Figure]:
    """Return dispatches over time by outcome, and the staleness of replies, if any was stale.

    Of a single round nothing is over time.
    """
    figures = []
    if len(rounds.get("asked", ())) > 1 and rounds["asked"].any():
        there = [name for name in OUTCOMES if name in rounds]
        lines = {name: name for name in there if name in ALWAYS or rounds[name].any()}
        title = "Dispatches and what became of them, by round"
        figures.append(_over_time(rounds, "participation", title, Axis("dispatches of the round"), lines))
    if "staleness_max" in rounds and (rounds["staleness_max"].astype(float) > 0).any():
        title = "Staleness of the replies merged, by round"
        axis = Axis("merges since the dispatch")
        figures.append(_over_time(rounds, "staleness", title, axis, STALENESS))
    return figures


def outcomes_by_group(groups: Mapping[str, Columns]) -> list[Figure]:
    """Return what became of the dispatches to a client, as a mean over each device group."""
    means = {
        label: {part: float(np.mean(rows[part])) for part in PARTS if part in rows}
        for label, rows in groups.items()
    }
    return outcome_figures(means, "mean over the clients of a device group")


def outcome_figures(bars: Mapping[str, Figures], of: str = "") -> list[Figure]:
    """Return what became of dispatches; nothing where there were none."""
    counts = {part: np.array([bar.get(part) or 0.0 for bar in bars.values()]) for part in PARTS}
    parts = [Part(label, values) for label, values in counts.items() if values.any()]
    if not parts:
        return []
    chart = BarChart(list(bars), parts, Axis("dispatches"))
    title = "What became of dispatches"
    return [Figure("outcomes", f"{title}, {of}" if of else title, bars_text(chart), chart)]


def _over_time(rounds: Columns, name: str, title: str, y: Axis, columns: Mapping[str, str]) -> Figure:
    time_s = rounds["ended_at_s"].astype(float)
    lines = [measured_line(label, time_s, rounds[name].astype(float)) for label, name in columns.items()]
    chart = LineChart(TIME, y, lines)
    return Figure(name, title, lines_text(chart), chart)
