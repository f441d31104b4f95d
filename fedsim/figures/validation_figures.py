"""The figures of a validation: when replies arrived, how long rounds took, and where time went."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedsim.figures.chart_descriptions import amount, bars_text, lines_text, listed
from fedsim.figures.chart_types import (
    Axis,
    BarChart,
    Figure,
    Line,
    LineChart,
    Part,
    PointChart,
    Points,
    Section,
)
from fedsim.figures.thinning import spread_over
from fedsim.report.validation import Validation
from fedsim.runtime.records.dispatch_phases import PHASES

MAX_POINTS = 400
"""Replies of an algorithm that are shown, evenly."""


def validation_sections(validations: Sequence[Validation]) -> list[Section]:
    """Return the figures of a validation."""
    return [
        Section(
            "validation",
            "Predicted and real",
            [_rounds(validations), _arrivals(validations), _phases(validations)],
        )
    ]


def _rounds(validations: Sequence[Validation]) -> Figure:
    lines = [
        Line(one.algorithm, np.arange(1, len(one.round_errors) + 1), one.round_errors) for one in validations
    ]
    chart = LineChart(Axis("round"), Axis("error of the predicted duration", "share"), lines)
    return Figure("round-errors", "Error of each round", lines_text(chart), chart)


def _arrivals(validations: Sequence[Validation]) -> Figure:
    groups, texts = [], []
    for one in validations:
        shown = spread_over(one.arrivals.shape[1], MAX_POINTS)
        predicted, real = one.arrivals[:, shown]
        names = [f"client {client}" for client in one.clients[shown].tolist()]
        groups.append(Points(one.algorithm, predicted, real - predicted, names))
        texts.append(f"{one.algorithm}: the last reply {amount(float((real - predicted)[-1]), 's')} later")
    chart = PointChart(Axis("predicted arrival of a reply", "s"), Axis("later than that", "s"), groups)
    return Figure("arrivals", "When replies arrived", listed(texts), chart)


def _phases(validations: Sequence[Validation]) -> Figure:
    bars = [f"{one.algorithm}, {word}" for one in validations for word in ("predicted", "real")]
    parts = [
        Part(phase, np.array([seconds for one in validations for seconds in one.phases[phase]]))
        for phase in PHASES
    ]
    chart = BarChart(bars, parts, Axis("client time", "s"))
    return Figure("phases", "Client time by phase", bars_text(chart), chart)
