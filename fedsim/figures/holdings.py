"""Who has which data: how many samples, and of which classes."""

from __future__ import annotations

import numpy as np

from fedsim.figures.chart_descriptions import amount
from fedsim.figures.chart_types import Axis, Figure, HeatChart, Line, LineChart
from fedsim.figures.client_quality import samples_axis
from fedsim.figures.thinning import spread_over
from fedsim.params import Array
from fedsim.report.cost_breakdown import Columns

MAX_ROWS = 40
"""Clients whose classes are shown; of more, some that are spread evenly over all."""

MAX_COLUMNS = 100
"""Classes that are shown; of more, those with the most samples."""

NEEDED = ("client", "class", "class_name", "num_samples")
"""Columns of ``client_classes`` that the figure of classes is made of."""


def class_figures(held: Columns) -> list[Figure]:
    """Return the training samples of clients by class, as a grid."""
    if not held or not len(held["client"]):
        return []
    holders, row = np.unique(held["client"], return_inverse=True)
    numbers, first, column = np.unique(held["class"], return_index=True, return_inverse=True)
    grid = np.zeros((len(holders), len(numbers)))
    grid[row, column] = held["num_samples"]
    shares = grid.max(axis=1) / grid.sum(axis=1)
    text = (
        f"A client with training samples has {np.count_nonzero(grid, axis=1).mean():.1f} of {len(numbers)} "
        f"classes on average, and its largest class makes up {amount(float(shares.mean()), 'share')} of its "
        "samples."
    )
    rows, columns = spread_over(len(holders), MAX_ROWS), np.arange(len(numbers))
    notes = []
    if len(rows) < len(holders):
        notes.append(f"Of {len(holders)} clients with training samples {len(rows)} are shown.")
    if len(numbers) > MAX_COLUMNS:
        columns = np.sort(np.argsort(-grid.sum(axis=0), kind="stable")[:MAX_COLUMNS])
        notes.append(f"Of {len(numbers)} classes the {MAX_COLUMNS} with the most samples are shown.")
    chart = HeatChart(
        "client",
        "class",
        [str(client) for client in holders[rows].tolist()],
        held["class_name"][first[columns]].tolist(),
        grid[np.ix_(rows, columns)],
        Axis("training samples"),
    )
    return [Figure("classes-of-clients", "Training samples by client and class", text, chart, notes)]


def amount_figures(num_train: Array) -> list[Figure]:
    """Return how many training samples clients have, from the fewest to the most, unless all have as many."""
    samples = np.sort(num_train.astype(float))
    if not len(samples) or samples[0] == samples[-1]:
        return []
    share = np.arange(1, len(samples) + 1) / len(samples)
    chart = LineChart(
        Axis("share of clients, from the fewest samples to the most", "share"),
        samples_axis(samples),
        [Line("clients", share, samples)],
    )
    text = (
        f"{len(samples)} clients have {samples[0]:.0f} to {samples[-1]:.0f} training samples, "
        f"{np.median(samples):.0f} in the median, {samples.sum():.0f} together."
    )
    return [Figure("samples-of-clients", "Training samples of clients", text, chart)]
